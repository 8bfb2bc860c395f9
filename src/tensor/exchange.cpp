#include "tensor/exchange.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <shared_tensor/value.hpp>

#include "json_rpc/json_text.hpp"
#include "tensor/devices/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

std::string text_of(const TransportNotPossible::Reasons& reasons) {
    std::string text = "no way to hand the tensor over";
    for (const auto& [way, reason] : reasons) {
        text.append(reasons.front().first == way ? ": " : "; ").append(name_of(way)).append(": ").append(reason);
    }
    return text;
}

void append_counts(ShapeView counts, json_rpc::LongText& text) {
    char separator = '[';
    for (const std::int64_t count : counts) {
        (text += separator).append(std::to_string(count));
        separator = ',';
    }
    text.append(counts.empty() ? "[]" : "]");
}

/// Orders transports for a tensor that exceeds all limits of ExportPolicy.
int compactness(Way way) { return way == Way::data ? 0 : way == Way::base64 ? 1 : 2; }

/// Whether the transport can carry tensors of a dtype. The most general reason against it comes first.
Viability judge(const Media& media, Way way, DType dtype) {
    const Viability viable = media.viable(way);
    return viable ? media.find(way)->carries(dtype) : viable;
}

}  // namespace

TooManyElements::TooManyElements(std::uint64_t elements, std::uint64_t limit)
    : std::length_error("a tensor of " + std::to_string(elements) + " elements cannot be written as data: at most " +
                        std::to_string(limit)),
      elements_(elements),
      limit_(limit) {}

TransportNotPossible::TransportNotPossible(Reasons reasons)
    : std::runtime_error(text_of(reasons)), reasons_(std::move(reasons)) {}

Json TransportNotPossible::reasons_json() const {
    Json json = Json::object();
    for (const auto& [way, reason] : reasons_)
        json[std::string(name_of(way))] = reason;
    return json;
}

codec::TensorPointer TensorExchange::import(const Json& json) { return import(parse_descriptor(json, limits_)); }

codec::TensorPointer TensorExchange::import(const Descriptor& descriptor) {
    const auto way = [&] { return std::string(name_of(descriptor.way)); };
    if (const Viability viable = media_->viable(descriptor.way); !viable) {
        throw InvalidValue(way(), "one of the ways that can be used here (" + media_->viable_names() + ")",
                           way() + ", but " + viable.reason);
    }
    const Medium& medium = *media_->find(descriptor.way);
    if (const Viability carried = medium.carries(descriptor.dtype); !carried) {
        throw InvalidValue(way(), "another way for this dtype", way() + ", but " + carried.reason);
    }
    if (descriptor.device != "cpu" && descriptor.way != Way::cuda_ipc) {
        throw InvalidValue("device", "\"cpu\": " + way() + " brings the bytes to host memory", descriptor.device);
    }
    if (descriptor.way == Way::body && is_compressed(descriptor)) {
        // A few compressed bytes can claim a huge size: allow only as much as a client could send uncompressed.
        const std::uint64_t bytes = descriptor.extent.bytes, most = limits_.max_expanded_bytes;
        if (bytes > most || uncompressed_in_ > most - bytes) {
            throw InvalidValue("body",
                               "at most " + std::to_string(limits_.max_expanded_bytes) +
                                   " bytes in a message, as they are uncompressed",
                               std::to_string(descriptor.extent.bytes) + " bytes");
        }
    }
    Imported imported = medium.import(descriptor, incoming_);
    compressed_in_ += imported.compressed;
    if (imported.compressed > 0) uncompressed_in_ += descriptor.extent.bytes;
    count(descriptor.way, imported.copied);
    if (imported.lent != nullptr) lent_.emplace_back(imported.lent);
    return std::move(imported.tensor);
}

void TensorExchange::take_over(codec::LentMemory& memory) {
    std::shared_ptr<const void> counted;
    if (incoming_.hold) {
        counted = incoming_.hold(memory.bytes());
        if (counted == nullptr) throw std::bad_alloc();
    }
    count_copied(memory.take_over(std::move(counted)));
}

codec::TensorPointer TensorExchange::wrap(const TensorRef& tensor) { return make_handle(tensor); }

TensorRef TensorExchange::in_host_memory(const TensorRef& tensor) {
    if (tensor.device().kind == Device::Kind::cpu) return tensor;
    TensorRef copy = allocate(tensor.dtype(), tensor.shape());
    if (tensor.elements() > 0) read_from_device(tensor, mutable_bytes(copy).data());
    counts_[static_cast<std::size_t>(Way::cuda_ipc)].copied += tensor.bytes();
    return copy;
}

void TensorExchange::describe(const codec::TensorPointer& handle, json_rpc::LongText& out) {
    TransportNotPossible::Reasons reasons;
    const Medium* medium = nullptr;
    Exported exported;
    for (bool done = false; !done;) {
        medium = &choose(handle, reasons);
        const std::uint64_t elements = handle->tensor().elements();
        if (medium->way() == Way::data && elements > policy_.most_data_elements)
            throw TooManyElements(elements, policy_.most_data_elements);
        try {
            exported = medium->export_to(handle, body_);
            done = true;
        } catch (const CannotLend& error) {
            reasons.emplace_back(medium->way(), error.what());
        }
    }
    const TensorRef& tensor = handle->tensor();
    if (exported.held != nullptr) held_.push_back(std::move(exported.held));
    json_rpc::print_json_string(exported.device, out.append(R"({"device":)"));
    out.append(R"(,"dtype":")").append(name_of(tensor.dtype())).append(R"(")");
    if (!exported.lease.empty()) json_rpc::print_json_string(exported.lease, out.append(R"(,"lease":)"));
    append_counts(tensor.shape(), out.append(R"(,"shape":)"));
    if (!exported.strides.empty()) append_counts(exported.strides, out.append(R"(,"strides":)"));
    const char* const quote = exported.is_word ? "\"" : "";
    out.append(R"(,")").append(name_of(medium->way())).append(R"(":)");
    if (exported.is_printed) {
        medium->print(handle, out);
    } else {
        out.append(quote).append(exported.content).append(quote);
    }
    out += '}';
    count(medium->way(), exported.copied);
}

Json TensorExchange::describe(const codec::TensorPointer& tensor) {
    json_rpc::LongText text;
    describe(tensor, text);
    return Json::parse(text.take_whole());
}

/// Skips transports that already have an entry in `reasons`, and adds one for each that cannot carry the tensor.
const Medium& TensorExchange::choose(const codec::TensorPointer& tensor, TransportNotPossible::Reasons& reasons) const {
    static const std::vector<Way> kAnyone{Way::data, Way::base64};
    const auto& wishes = !policy_.require.empty()  ? policy_.require
                         : !policy_.accept.empty() ? policy_.accept
                                                   : kAnyone;
    const DType dtype = tensor->tensor().dtype();
    const auto tried = [&](Way way) {
        return std::any_of(reasons.begin(), reasons.end(), [&](const auto& one) { return one.first == way; });
    };
    const Medium* beyond = nullptr;  // the most compact medium whose limit is exceeded
    for (const Way way : wishes) {
        if (tried(way)) continue;
        const Viability general = judge(*media_, way, dtype);
        const Viability can = general ? media_->find(way)->fits(*tensor) : general;
        if (!can) {
            reasons.emplace_back(way, can.reason);
        } else if (within_bounds(way, tensor)) {
            return *media_->find(way);
        } else if (beyond == nullptr || compactness(way) > compactness(beyond->way())) {
            beyond = media_->find(way);
        }
    }
    if (beyond == nullptr) throw TransportNotPossible(std::move(reasons));
    return *beyond;
}

bool TensorExchange::within_bounds(Way way, const codec::TensorPointer& tensor) const {
    if (way == Way::shm) return tensor->bytes() >= policy_.shm_min_bytes || media_->find(way)->holds(*tensor);
    if (way == Way::data) {
        return tensor->tensor().elements() <= std::min(policy_.data_max_elements, policy_.most_data_elements);
    }
    return way != Way::base64 || tensor->bytes() <= policy_.base64_max_bytes;
}

void TensorExchange::count(Way way, std::uint64_t copied) {
    Count& count = counts_[static_cast<std::size_t>(way)];
    ++count.tensors;
    count.copied += copied;
}

CompressionCounts TensorExchange::compression() const {
    const auto& out = body_.compressed();
    return {compressed_in_, uncompressed_in_, out.compressed, out.uncompressed};
}

std::string TensorExchange::summary() const {
    std::string text;
    for (const Way way : kWays) {
        const Count& count = counts_[static_cast<std::size_t>(way)];
        if (count.tensors == 0) continue;
        text.append(text.empty() ? "" : ", ").append(name_of(way));
        text.append(";tensors=" + std::to_string(count.tensors) + ";copied=" + std::to_string(count.copied));
        const CompressionCounts smaller = compression();
        const std::uint64_t compressed = smaller.compressed_in + smaller.compressed_out;
        if (way == Way::body && compressed > 0) {
            text.append(";compressed=" + std::to_string(compressed));
            text.append(";uncompressed=" + std::to_string(smaller.uncompressed_in + smaller.uncompressed_out));
        }
    }
    return text;
}

}  // namespace shared_tensor::tensor
