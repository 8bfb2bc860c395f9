#include "tensor/transports/tensor_transfer.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <shared_tensor/value.hpp>

#include "protocol/json_rpc/json_text.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

std::string text_of_reasons(const TransportNotPossible::Reasons& reasons) {
    std::string text = "no transport can carry the tensor";
    for (const auto& [transport, reason] : reasons) {
        text.append(reasons.front().first == transport ? ": " : "; ")
            .append(name_of(transport))
            .append(": ")
            .append(reason);
    }
    return text;
}

/// Orders transports for a tensor that exceeds all limits of ExportPolicy.
int compactness(TransportKind transport) {
    return transport == TransportKind::data ? 0 : transport == TransportKind::base64 ? 1 : 2;
}

}  // namespace

TooManyElements::TooManyElements(std::uint64_t elements, std::uint64_t limit)
    : std::length_error("a tensor of " + std::to_string(elements) + " elements cannot be written as data: at most " +
                        std::to_string(limit)),
      elements_(elements),
      limit_(limit) {}

TransportNotPossible::TransportNotPossible(Reasons reasons)
    : std::runtime_error(text_of_reasons(reasons)), reasons_(std::move(reasons)) {}

Json TransportNotPossible::reasons_json() const {
    Json json = Json::object();
    for (const auto& [transport, reason] : reasons_)
        json[std::string(name_of(transport))] = reason;
    return json;
}

codec::TensorPointer TensorTransfer::import(const Json& json) { return import(parse_descriptor(json, limits_)); }

codec::TensorPointer TensorTransfer::import(const Descriptor& descriptor) {
    const auto named = [&] { return std::string(name_of(descriptor.transport)); };
    if (const Viability viable = transports_->viable(descriptor.transport); !viable) {
        throw InvalidValue(named(), "one of the transports that can be used here (" + transports_->viable_names() + ")",
                           named() + ", but " + viable.reason);
    }
    if (descriptor.device != "cpu" && descriptor.transport != TransportKind::cuda_ipc) {
        throw InvalidValue("device", "\"cpu\": " + named() + " brings the bytes to host memory", descriptor.device);
    }
    if (is_compressed(descriptor)) {
        // A few compressed bytes can claim a huge size: allow only as much as a client could send uncompressed.
        const std::uint64_t bytes = descriptor.extent.bytes, most = limits_.max_expanded_bytes;
        if (bytes > most || uncompressed_in_ > most - bytes) {
            throw InvalidValue("body",
                               "at most " + std::to_string(limits_.max_expanded_bytes) +
                                   " bytes in a message, as they are uncompressed",
                               std::to_string(descriptor.extent.bytes) + " bytes");
        }
    }
    Imported imported = transports_->find(descriptor.transport)->import(descriptor, incoming_);
    compressed_in_ += imported.compressed;
    if (imported.compressed > 0) uncompressed_in_ += descriptor.extent.bytes;
    count(descriptor.transport, imported.tensor->bytes(), imported.copied);
    if (imported.lent != nullptr) lent_.emplace_back(imported.lent);
    return std::move(imported.tensor);
}

void TensorTransfer::take_over(codec::LentMemory& memory) { count_copied(memory.take_over(hold(memory.bytes()))); }

std::shared_ptr<const void> TensorTransfer::hold(std::uint64_t bytes) {
    if (!incoming_.hold) return nullptr;
    auto counted = incoming_.hold(bytes);
    if (counted == nullptr) throw std::bad_alloc();
    return counted;
}

codec::TensorPointer TensorTransfer::wrap(const TensorRef& tensor) { return make_handle(tensor); }

TensorRef TensorTransfer::in_host_memory(const TensorRef& tensor) {
    if (tensor.device().kind == Device::Kind::cpu) return tensor;
    TensorRef copy = allocate(tensor.dtype(), tensor.shape());
    copy_elements(tensor, copy.mutable_data());
    counts_[static_cast<std::size_t>(TransportKind::cuda_ipc)].copied += tensor.bytes();
    return copy;
}

void TensorTransfer::describe(const codec::TensorPointer& handle, json_rpc::LongText& out) {
    TransportNotPossible::Reasons reasons;
    const Transport* transport = nullptr;
    Exported exported;
    for (bool done = false; !done;) {
        transport = &choose(handle, reasons);
        const std::uint64_t elements = handle->tensor().elements();
        if (transport->kind() == TransportKind::data && elements > policy_.most_data_elements)
            throw TooManyElements(elements, policy_.most_data_elements);
        try {
            exported = transport->export_to(handle, body_);
            done = true;
        } catch (const CannotLend& error) {
            reasons.emplace_back(transport->kind(), error.what());
        }
    }
    const TensorRef& tensor = handle->tensor();
    if (exported.lent.held != nullptr) held_.push_back(std::move(exported.lent.held));
    json_rpc::print_json_string(exported.device, out.append(R"({"device":)"));
    out.append(R"(,"dtype":")").append(name_of(tensor.dtype())).append(R"(")");
    if (const std::string& lease = exported.lent.lease; !lease.empty())
        json_rpc::print_json_string(lease, out.append(R"(,"lease":)"));
    out.append(R"(,"shape":)").append(tensor::text_of(tensor.shape()));
    if (!exported.strides.empty()) out.append(R"(,"strides":)").append(tensor::text_of(exported.strides));
    out.append(R"(,")").append(name_of(transport->kind())).append(R"(":)");
    if (exported.print) {
        exported.print(out);
    } else {
        out.append(exported.content);
    }
    out += '}';
    count(transport->kind(), handle->bytes(), exported.copied);
}

Json TensorTransfer::describe(const codec::TensorPointer& tensor) {
    json_rpc::LongText text;
    describe(tensor, text);
    return Json::parse(text.take_whole());
}

/// Skips transports that already have an entry in `reasons`, and adds one for each that cannot carry the tensor.
const Transport& TensorTransfer::choose(const codec::TensorPointer& tensor,
                                        TransportNotPossible::Reasons& reasons) const {
    static const std::vector<TransportKind> kWithoutAccept{TransportKind::data, TransportKind::base64};
    const auto& requested = !policy_.require.empty()  ? policy_.require
                            : !policy_.accept.empty() ? policy_.accept
                                                      : kWithoutAccept;
    const auto tried = [&](TransportKind transport) {
        return std::any_of(reasons.begin(), reasons.end(), [&](const auto& one) { return one.first == transport; });
    };
    const Transport* beyond = nullptr;  // the most compact transport whose limit is exceeded
    for (const TransportKind transport : requested) {
        if (tried(transport)) continue;
        Viability can = transports_->viable(transport);
        if (can) can = transports_->find(transport)->fits(*tensor);
        if (!can) {
            reasons.emplace_back(transport, can.reason);
        } else if (within_bounds(transport, tensor)) {
            return *transports_->find(transport);
        } else if (beyond == nullptr || compactness(transport) > compactness(beyond->kind())) {
            beyond = transports_->find(transport);
        }
    }
    if (beyond == nullptr) throw TransportNotPossible(std::move(reasons));
    return *beyond;
}

bool TensorTransfer::within_bounds(TransportKind transport, const codec::TensorPointer& tensor) const {
    if (transport == TransportKind::shm)
        return tensor->bytes() >= policy_.shm_min_bytes || transports_->find(transport)->holds(*tensor);
    if (transport == TransportKind::data) {
        return tensor->tensor().elements() <= std::min(policy_.data_max_elements, policy_.most_data_elements);
    }
    return transport != TransportKind::base64 || tensor->bytes() <= policy_.base64_max_bytes;
}

void TensorTransfer::count(TransportKind transport, std::uint64_t bytes, std::uint64_t copied) {
    Count& count = counts_[static_cast<std::size_t>(transport)];
    ++count.tensors;
    count.bytes += bytes;
    count.copied += copied;
}

CompressionCounts TensorTransfer::compression() const {
    const CompressionCounts& out = body_.compressed();
    return {compressed_in_, uncompressed_in_, out.compressed_out, out.uncompressed_out};
}

std::string TensorTransfer::summary() const {
    std::string text;
    for (const TransportKind transport : kTransportKinds) {
        const Count& count = counts_[static_cast<std::size_t>(transport)];
        if (count.tensors == 0) continue;
        text.append(text.empty() ? "" : ", ").append(name_of(transport));
        text.append(";tensors=" + std::to_string(count.tensors) + ";copied=" + std::to_string(count.copied));
        const CompressionCounts smaller = compression();
        const std::uint64_t compressed = smaller.compressed_in + smaller.compressed_out;
        if (transport == TransportKind::body && compressed > 0) {
            text.append(";compressed=" + std::to_string(compressed));
            text.append(";uncompressed=" + std::to_string(smaller.uncompressed_in + smaller.uncompressed_out));
        }
    }
    return text;
}

}  // namespace shared_tensor::tensor
