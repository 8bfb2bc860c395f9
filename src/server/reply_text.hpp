#pragma once

#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "http/message.hpp"
#include "json_rpc/error.hpp"
#include "json_rpc/long_text.hpp"
#include "server/client_watch.hpp"
#include "server/message_references.hpp"

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

}  // namespace shared_tensor::server
