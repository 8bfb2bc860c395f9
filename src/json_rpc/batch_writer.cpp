#include "json_rpc/batch_writer.hpp"

#include <utility>

#include "json_rpc/print.hpp"

namespace shared_tensor::json_rpc {
namespace {

constexpr std::size_t kSeparator = 1;  // the bracket or comma in front of an item

}  // namespace

void BatchWriter::expect(const Json& id) {
    reserved_bytes_ += too_large(id).size() + kSeparator;
    errors_fit_ = reserved_bytes_ <= max_bytes_;
}

void BatchWriter::add(const Json& id, std::string_view printed) {
    const auto error = too_large(id);
    reserved_bytes_ -= error.size() + kSeparator;
    if (!errors_fit_) return;
    const bool fits = printed.size() + kSeparator <= max_bytes_ - reserved_bytes_ - out_.size();
    append(fits ? printed : error);
}

std::string BatchWriter::finish() {
    if (!errors_fit_) return too_large(nullptr);
    if (!out_.empty()) out_ += ']';
    return std::move(out_);
}

std::string BatchWriter::too_large(const Json& id) const {
    std::string text;
    print(Response{id, response_too_large(max_bytes_)}, text);
    return text;
}

void BatchWriter::append(std::string_view printed) {
    out_ += out_.empty() ? '[' : ',';
    out_ += printed;
}

}  // namespace shared_tensor::json_rpc
