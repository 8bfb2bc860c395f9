#pragma once

#include <variant>

#include "http/body_reader.hpp"
#include "http/head_parser.hpp"
#include "http/input_buffer.hpp"
#include "http/response_writer.hpp"
#include "http/server_context.hpp"

namespace shared_tensor::http {

/// What becomes of a connection after a request.
enum class After {
    keep,     ///< the next request may follow
    close,    ///< nothing more to say or to read
    goodbye,  ///< the answer is out, but bytes of the client are unread: closing now could destroy the answer
};

/// Takes one request from its head to its answer. What the handler throws becomes a bare 500; std::bad_alloc may leave.
///
/// httplib's own Server::process_request is not used for this: behind our strict reading of the head it would parse
/// the head a second time and write an answer that has to be dropped, which took 8 of 24 us of a small call.
class RequestRunner {
public:
    explicit RequestRunner(ServerContext& context) : context_(context) {}

    /// `input` starts with what follows the head that `frame` was read from. Blocks until the answer is written.
    After run(Connection& connection, InputBuffer& input, RequestFrame frame);

    /// Answers a request that cannot be taken any further.
    After refuse(Connection& connection, HeadFault fault);

private:
    void look_at_peer(Connection& connection) const;
    bool count(Connection& connection, const std::shared_ptr<Budget>& client);
    std::variant<BodyPlan, Response> admit(const RequestHead& head);
    std::optional<WebSocketPlan> upgrade(const RequestHead& head);
    After serve(Connection& connection, InputBuffer& input, std::string_view key, const WebSocketPlan& plan);
    BodyResult receive_body(Connection& connection, InputBuffer& input, const RequestFrame& frame,
                            const BodyPlan& plan);
    bool invite_body(Wire& wire);
    After refuse(Connection& connection, HeadFault fault, ThreadHold& hold, bool head_only, const RequestHead* head);
    After answer(Connection& connection, const Response& response, const RequestFrame& frame, bool head_only,
                 ThreadHold& hold);
    After answer_refusal(Connection& connection, InputBuffer& input, const Response& response,
                         const RequestFrame& frame, ThreadHold& hold);
    bool write(Connection& connection, const Response& response, ResponseForm form, ThreadHold& hold);
    bool may_keep(const Response& response, const RequestFrame& frame) const;

    ServerContext& context_;
};

}  // namespace shared_tensor::http
