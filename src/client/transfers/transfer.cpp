#include "client/transfers/transfer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log/log.hpp"
#include "base/system/host.hpp"

namespace shared_tensor::client {

namespace {

[[noreturn]] void throw_too_large(const std::string& path, const std::string& what) {
    throw RpcError(static_cast<int>(ErrorCode::response_too_large), "Response too large", {},
                   path + ": " + what + "; a file may have as many bytes as this process may use of memory, " +
                       std::to_string(Transfer::max_file_bytes()));
}

}  // namespace

Transfer::Transfer(Core& core, std::string path, const CallOptions& call)
    : core_(&core),
      path_(std::move(path)),
      call_(&call),
      repeatable_{.stop = call.stop, .idempotent = true},
      times_(core.times_of(call)) {
    check_stop(call, path_);
    times_.of_transfer = true;
    if (!call.timeout) times_.deadline = SteadyTime::max();  // each request has the limit of an answer
    if (core.ports().session().empty()) compression_ = core.compression_;
}

net::ClientResponse Transfer::send(net::ClientRequest request) const {
    for (const auto& [name, value] : core_->headers_)
        request.headers.add(name, value);
    if (!call_->session.empty()) request.headers.add("Shared-Tensor-Session", call_->session);
    add_trace(request.headers, *call_);
    if (request.deadline == SteadyTime::max()) {  // else it tidies up, after a cancellation too
        request.deadline = std::min(times_.deadline, later(clock().now(), core_->options_.answer_limit));
        request.stop = call_->stop;
    }
    return core_->exchange(request);
}

std::shared_ptr<PooledBuffer> Transfer::take(std::uint64_t bytes) const {
    check_size(bytes);
    return core_->here().dependencies.sender->take_buffer(bytes);
}

void Transfer::check_size(std::uint64_t bytes) const {
    if (bytes > max_file_bytes()) throw_too_large(path_, "it has " + std::to_string(bytes) + " bytes");
}

std::uint64_t Transfer::max_file_bytes() {
    static const std::uint64_t bytes = memory_size();
    return bytes;
}

void Transfer::throw_failed(const net::TransportError& error, const std::string& path) const {
    using Kind = net::TransportError::Kind;
    if (error.kind == Kind::too_large) throw_too_large(path, error.what());
    if (error.kind == Kind::timeout && has_time()) throw TransportFailure(path + ": " + error.what(), error.sent);
    throw_failure(error, {}, path);
}

void Transfer::count(const CompressionCounts& bytes) const { core_->here().compression.add(bytes); }

void TransferCount::set(std::uint64_t bytes, std::uint64_t size) {
    if (!progress_) return;
    state_.with([&](State& state) {
        state = {bytes, size};
        progress_(bytes, size);
    });
}

void TransferCount::add(std::uint64_t bytes) {
    if (!progress_) return;
    state_.with([&](State& state) {
        state.bytes += bytes;
        progress_(state.bytes, state.size);
    });
}

void throw_rejection(const net::ClientResponse& response, const std::string& path) {
    throw_rejection(response, path, path + ": the server", true);
}

void throw_odd(const std::string& path, const std::string& what) { throw ProtocolFailure(path + ": " + what, true); }

std::string field_of(const net::Headers& headers, std::string_view name) {
    return std::string(headers.find(name).value_or(""));
}

}  // namespace shared_tensor::client
