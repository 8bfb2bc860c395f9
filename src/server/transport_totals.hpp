#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::server {

/// Counts the tensors that were transferred since the start, by transport, and the bytes copied for them. Thread-safe.
class TransportTotals {
public:
    void add(const tensor::TensorTransfer& transfer) {
        for (std::size_t i = 0; i < totals_.size(); ++i) {
            const auto& count = transfer.counts()[i];
            if (count.tensors == 0) continue;
            totals_[i].tensors.fetch_add(count.tensors, std::memory_order_relaxed);
            totals_[i].copied.fetch_add(count.copied, std::memory_order_relaxed);
        }
        compression_.add(transfer.compression());
    }
    /// The totals of all compressed data, tensors or not.
    CompressionTotals& compression() { return compression_; }
    const CompressionTotals& compression() const { return compression_; }

    codec::Json to_json() const {
        codec::Json json = codec::Json::object();
        for (std::size_t i = 0; i < totals_.size(); ++i) {
            json[std::string(tensor::name_of(tensor::kTransportKinds[i]))] = {
                {"tensors", totals_[i].tensors.load(std::memory_order_relaxed)},
                {"copied_bytes", totals_[i].copied.load(std::memory_order_relaxed)}};
        }
        return json;
    }

private:
    struct Total {
        std::atomic<std::uint64_t> tensors{0}, copied{0};
    };
    std::array<Total, tensor::kTransportKinds.size()> totals_;
    CompressionTotals compression_;
};

}  // namespace shared_tensor::server
