#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/server.hpp>

#include "base/bytes/compression.hpp"
#include "base/concurrency/alarms.hpp"
#include "base/log/line_file.hpp"
#include "runtime/calls/dispatcher.hpp"
#include "runtime/functions/open_rpc.hpp"
#include "runtime/models/model_table.hpp"
#include "runtime/models/torch_library.hpp"
#include "runtime/tables/lease_table.hpp"
#include "runtime/tables/object_table.hpp"
#include "runtime/tables/swarm_table.hpp"
#include "runtime/tables/upload_table.hpp"
#include "server/auth/credentials.hpp"
#include "server/files/named_tensors.hpp"
#include "server/local/local_clients.hpp"
#include "server/local/sessions.hpp"
#include "server/metrics/rejections.hpp"
#include "server/rpc/task_watches.hpp"
#include "server/state/saved_state.hpp"
#include "tensor/transports/shm_transport.hpp"
#include "tensor/transports/tensor_transfer.hpp"
#include "tracing/tracer.hpp"

namespace shared_tensor::server {

/// Counts the tensors that were transferred since the start, by transport, with their bytes and the bytes copied for
/// them. Thread-safe.
class TransportTotals {
public:
    void add(const tensor::TensorTransfer& transfer) {
        for (std::size_t i = 0; i < totals_.size(); ++i) {
            const auto& count = transfer.counts()[i];
            if (count.tensors == 0) continue;
            totals_[i].tensors.fetch_add(count.tensors, std::memory_order_relaxed);
            totals_[i].bytes.fetch_add(count.bytes, std::memory_order_relaxed);
            totals_[i].copied.fetch_add(count.copied, std::memory_order_relaxed);
        }
        compression_.add(transfer.compression());
    }
    /// The totals of all compressed data, tensors or not.
    CompressionTotals& compression() { return compression_; }
    const CompressionTotals& compression() const { return compression_; }

    /// The totals of one transport, in the order of kTransportKinds.
    tensor::TensorTransfer::Count count_of(std::size_t transport) const {
        const Total& total = totals_[transport];
        return {total.tensors.load(std::memory_order_relaxed), total.bytes.load(std::memory_order_relaxed),
                total.copied.load(std::memory_order_relaxed)};
    }
    codec::Json to_json() const {
        codec::Json json = codec::Json::object();
        for (std::size_t i = 0; i < totals_.size(); ++i) {
            const auto count = count_of(i);
            json[std::string(tensor::name_of(tensor::kTransportKinds[i]))] = {
                {"tensors", count.tensors}, {"bytes", count.bytes}, {"copied_bytes", count.copied}};
        }
        return json;
    }

private:
    struct Total {
        std::atomic<std::uint64_t> tensors{0}, bytes{0}, copied{0};
    };
    std::array<Total, tensor::kTransportKinds.size()> totals_;
    CompressionTotals compression_;
};

/// What the endpoints and methods of one server share: its options, its functions, and the tables of what its clients
/// hold. It outlives the endpoints, the methods and all requests. Its members are thread-safe.
struct Services {
    /// Throws std::invalid_argument for options that cannot be used.
    Services(const Registry& registry, ServerOptions wanted);

    /// Reserves `bytes` for `principal`, as HoldBytes does. The principal must outlive the result.
    std::function<std::shared_ptr<const void>(std::uint64_t bytes)> holder(const Principal& principal) const {
        return [this, &principal](std::uint64_t bytes) { return hold(principal, static_cast<std::size_t>(bytes)); };
    }

    const ServerOptions options;             ///< as they are in force
    const models::TorchModels* const torch;  ///< null: no models
    const std::string epoch;
    const CodingOffer compression;                    ///< for clients that accept one of its codings
    const std::unique_ptr<log::LineFile> access_log;  ///< null: none
    const std::unique_ptr<tracing::Tracer> tracer;    ///< null: there are no spans
    const runtime::CallReporting reporting;
    HoldBytes hold;           ///< counts what requests make the server hold; set before the first request
    Credentials credentials;  ///< used by the maintenance thread
    Clients clients;
    server::Access access;
    Sessions sessions;
    runtime::ObjectTable objects;
    runtime::LeaseTable leases;
    LocalClients local;
    tensor::SharedAllocation allocation;
    const std::unique_ptr<SavedState> state;  ///< null: everything ends with the process
    const std::string names_epoch;            ///< part of the tags of named tensors
    NamedTensors names;
    runtime::UploadTable uploads;
    runtime::SwarmTable swarms;
    TransportTotals transports;
    Rejections rejections;
    Alarms alarms{"st-alarms"};  ///< for calls that run on the threads of their requests
    TaskWatches watches;         ///< before the dispatcher, whose tasks report changes until they end
    runtime::Dispatcher dispatcher;
    models::ModelTable models;
    runtime::OpenRpc open_rpc;
};

}  // namespace shared_tensor::server
