#pragma once

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/memory_faults.hpp"
#include "net/message/message.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"
#include "runtime/calls/outcome.hpp"
#include "server/methods/rejected.hpp"
#include "server/rpc/client_watch.hpp"
#include "server/rpc/reply_context.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::server {

/// Writing an answer was stopped: its client is gone, or the budget of bytes in flight is exhausted. Derived from
/// std::bad_alloc, so that code that handles lack of memory handles it too.
class ReplyStopped : public std::bad_alloc {
public:
    explicit ReplyStopped(json_rpc::Error error) : error_(std::move(error)) {}
    const json_rpc::Error& error() const { return error_; }

private:
    json_rpc::Error error_;
};

/// The JSON of an answer. Beyond 64 KiB it is kept in pieces of 1 MiB. Each piece counts as bytes in flight of the
/// client, and before each piece the client's connection is checked. Throws ReplyStopped if the client is gone or the
/// budget is exhausted. Not thread-safe.
class ReplyText final : public json_rpc::LongText {
public:
    static constexpr std::size_t kFirstPiece = std::size_t{64} << 10, kPiece = std::size_t{1} << 20;

    /// The arguments must outlive it. `client` is null if the connection cannot be checked.
    ReplyText(const Services& all, const Principal& principal, ClientWatch* client = nullptr)
        : LongText(kFirstPiece, kPiece), all_(&all), principal_(&principal), client_(client) {}

    /// Moves the text out. Each part keeps the reservation of its bytes alive.
    std::vector<net::BodyPart> take_parts();
    /// The same as the beginning of a frame: the length, the text, and spaces up to the tensors (codec::frame_head).
    std::vector<net::BodyPart> take_frame();

protected:
    void make_room(std::size_t bytes) override;
    void give_back_room() override {
        if (shares_ != nullptr) shares_->pop_back();
    }

private:
    using Shares = std::vector<std::shared_ptr<const void>>;

    const Services* all_;
    const Principal* principal_;
    ClientWatch* client_;
    std::shared_ptr<Shares> shares_{};
};

/// Prints one answer. Tensors go through `transfer` by its policy; objects become handles of `issued`. If the value
/// cannot be printed, or memory that its tensors may lie in has failed (`memory`), prints an error that says why.
/// Returns the code of the printed error; 0: a result. Throws json_rpc::TextTooLong if the limit of `out` itself is too
/// low.
int print_outcome(const json_rpc::Json& id, const runtime::CallOutcome& outcome, tensor::TensorTransfer& transfer,
                  IssuedHandles& issued, const FaultWatch& memory, const ReplyLimits& limits, json_rpc::LongText& out);

/// The HTTP answer around printed JSON: plain, or in frame form when tensors went by body.
net::Response finish_reply(ReplyText json, const tensor::TensorTransfer& transfer);

/// The error for the caller if the exception that is being handled tells why a value could not be printed; else
/// nullopt. Call it in a catch block. `limit_bytes`: of the text.
std::optional<json_rpc::Error> unprintable(std::size_t limit_bytes);

/// A failure below JSON-RPC: `error` with an HTTP status, and with Retry-After if it is -32001 (busy).
net::Response error_response(int status, const json_rpc::Error& error);
/// A 415 response for a content coding lists the supported codings.
net::Response error_response(const Rejected& rejected);
/// 503, for a request that may be sent again a second later.
net::Response busy_response(std::string_view reason = {});
/// -32001 for a client that sends more requests than it may.
json_rpc::Error too_many_requests(std::chrono::milliseconds wait);
/// -32001 for a request that waits, if no thread can be spared (net::ResponseStream::may_take_long).
json_rpc::Error no_thread();
/// Answers with `error`, as set_status() says.
net::Response error_reply(const json_rpc::Json& id, const json_rpc::Error& error);
/// The two errors that ask a client to come back get status 503 and Retry-After, all others status 200.
void set_status(net::Response& response, const json_rpc::Error& error);

}  // namespace shared_tensor::server
