#include "protocol/json_rpc/long_text.hpp"

#include <algorithm>
#include <utility>

namespace shared_tensor::json_rpc {

void LongText::expect(std::size_t bytes) const {
    if (bytes <= limit_ && size() <= limit_ - bytes) return;
    throw TextTooLong("a text of more than " + std::to_string(limit_) + " bytes");
}

LongText& LongText::append_in_pieces(std::string_view text) {
    expect(text.size());
    while (!text.empty()) {
        if (tail_.size() == tail_limit_) {
            const std::size_t bytes = std::min(piece_, limit_ - size());
            make_room(bytes);
            std::string next;
            next.reserve(bytes);
            full_.push_back(std::move(tail_));
            full_bytes_ += full_.back().size();
            tail_ = std::move(next);
            tail_limit_ = piece_;
        }
        const auto part = text.substr(0, tail_limit_ - tail_.size());
        tail_.append(part);
        text.remove_prefix(part.size());
    }
    return *this;
}

void LongText::truncate(std::size_t size) {
    while (size < full_bytes_) {
        tail_ = std::move(full_.back());
        full_.pop_back();
        full_bytes_ -= tail_.size();
        give_back_room();
        if (full_.empty()) tail_limit_ = first_piece_;
    }
    tail_.resize(size - full_bytes_);
}

std::string LongText::take_whole() {
    if (is_one_piece()) return std::exchange(tail_, {});
    std::string whole;
    whole.reserve(size());
    for (const std::string& piece : take_pieces())
        whole += piece;
    return whole;
}

std::vector<std::string> LongText::take_pieces() {
    std::vector<std::string> pieces = std::move(full_);
    full_.clear();
    full_bytes_ = 0;
    if (!tail_.empty()) pieces.push_back(std::move(tail_));
    tail_.clear();
    return pieces;
}

}  // namespace shared_tensor::json_rpc
