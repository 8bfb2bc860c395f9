#pragma once

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "codec/value.hpp"
#include "http/message.hpp"
#include "json_rpc/batch_writer.hpp"
#include "json_rpc/error.hpp"
#include "json_rpc/long_text.hpp"
#include "server/client_watch.hpp"
#include "server/message_references.hpp"
#include "server/recipient.hpp"
#include "service/outcome.hpp"
#include "tensor/exchange.hpp"
#include "util/memory_faults.hpp"

namespace shared_tensor::server {

/// An answer cannot be written on: its client is gone, or clients hold too many bytes already. A kind of lack of
/// memory, so that it is handled wherever that is.
class ReplyStopped : public std::bad_alloc {
public:
    explicit ReplyStopped(json_rpc::Error error) : error_(std::move(error)) {}
    const json_rpc::Error& error() const { return error_; }

private:
    json_rpc::Error error_;
};

/// The JSON of an answer. Beyond 64 KiB it is kept in pieces of 1 MiB, which count as bytes in flight of its client,
/// and before each of them the client is asked for: when it is gone, nobody wants the rest. One thread at a time.
class ReplyText final : public json_rpc::LongText {
public:
    static constexpr std::size_t kFirstPiece = std::size_t{64} << 10, kPiece = std::size_t{1} << 20;

    /// All that is given outlives it. `client`: null where nobody can be asked.
    ReplyText(const ServerValues& values, const Principal& principal, ClientWatch* client = nullptr)
        : LongText(kFirstPiece, kPiece), values_(&values), principal_(&principal), client_(client) {}

    /// The text, which is empty afterwards. Each part keeps what counts the bytes.
    std::vector<http::BodyPart> take_parts();
    /// As the beginning of a frame: its length, the text, and spaces up to the tensors (codec::frame_head).
    std::vector<http::BodyPart> take_frame();

protected:
    void make_room(std::size_t bytes) override;
    void give_back_room() override {
        if (shares_ != nullptr) shares_->pop_back();
    }

private:
    using Shares = std::vector<std::shared_ptr<const void>>;

    const ServerValues* values_;
    const Principal* principal_;
    ClientWatch* client_;
    std::shared_ptr<Shares> shares_{};
};

/// Prints one answer; tensors go through `exchange` by its policy, objects as handles of `grants`. What can't be
/// printed becomes the error that says why, and so does a value when `memory`, which its tensors may lie in, failed.
/// Throws json_rpc::TextTooLong where the limit of `out` itself is too low.
void print_outcome(const json_rpc::Json& id, const service::CallOutcome& outcome, tensor::TensorExchange& exchange,
                   HandleGrants& grants, const FaultWatch& memory, const ReplyLimits& limits, json_rpc::LongText& out);
/// -32003 for a text that is longer than one answer may be.
json_rpc::Error too_long(std::size_t limit_bytes);
/// -32003 for a tensor that cannot be written as `data`.
json_rpc::Error too_many_elements(const tensor::TooManyElements& tensor);

/// The HTTP answer around printed JSON: plain, or in frame form when tensors went by body.
http::Response finish_reply(ReplyText json, const tensor::TensorExchange& exchange);

/// What fails below JSON-RPC: a status of HTTP, with the error as body.
http::Response refusal(int status, const json_rpc::Error& error);
/// A client that asks more often than it may (-32001).
json_rpc::Error too_many_requests(std::chrono::milliseconds wait);
/// No thread can be spared for a request that waits (http::Exchange::may_take_long).
json_rpc::Error no_thread();
/// 503 and Retry-After for the two errors that ask a client to come back; 200 for all others.
http::Response error_reply(const json_rpc::Json& id, const json_rpc::Error& error);
void set_status(http::Response& response, const json_rpc::Error& error);

}  // namespace shared_tensor::server
