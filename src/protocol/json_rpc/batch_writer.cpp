#include "protocol/json_rpc/batch_writer.hpp"

#include <string>

#include "protocol/json_rpc/print.hpp"

namespace shared_tensor::json_rpc {
namespace {

constexpr std::size_t kSeparator = 1;  // the bracket or comma before an item

}  // namespace

void BatchWriter::expect(const Json& id) {
    reserved_bytes_ += too_large(id).size() + kSeparator;
    errors_fit_ = reserved_bytes_ <= max_bytes_;
}

void BatchWriter::add(const Json& id, const std::function<void(LongText& out)>& print) {
    const auto error = too_large(id);
    reserved_bytes_ -= error.size() + kSeparator;
    if (!errors_fit_) return;
    const std::size_t start = out_.size();
    out_.set_limit(max_bytes_ - reserved_bytes_);
    try {
        begin_item();
        print(out_);
    } catch (const TextTooLong&) {
        out_.truncate(start);
        begin_item();
        out_ += error;
    }
}

void BatchWriter::add(const Json& id, std::string_view printed) {
    add(id, [&](LongText& out) { out += printed; });
}

void BatchWriter::finish() {
    out_.set_limit(LongText::kNoLimit);
    if (!errors_fit_) {
        out_ += too_large(nullptr);
    } else if (out_.size() > 0) {
        out_ += ']';
    }
}

std::string BatchWriter::too_large(const Json& id) const {
    std::string text;
    print(Response{id, response_too_large(max_bytes_)}, text);
    return text;
}

void BatchWriter::begin_item() { out_ += out_.size() == 0 ? '[' : ','; }

}  // namespace shared_tensor::json_rpc
