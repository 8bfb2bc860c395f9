// Opens a call that streams.

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/streams/streaming.hpp"

namespace shared_tensor::client {

namespace {

using json_rpc::Json;

Json meta_of(const CallOptions& call, const ClientOptions& client) {
    Json meta{{"stream_window", {{"items", client.stream_window.items}, {"bytes", client.stream_window.bytes}}}};
    if (call.timeout) meta["timeout_ms"] = std::clamp<std::int64_t>(call.timeout->count(), 1, 86'400'000);
    return meta;
}

}  // namespace

std::shared_ptr<detail::CallerStreams> open_stream(const std::shared_ptr<Core>& core,
                                                   std::shared_ptr<const void> session, std::string_view method,
                                                   const CallArguments& arguments, const CallOptions& options) {
    core->agree_on_coding(options);
    Core::Times times = core->times_of(options);
    const auto attempt = [&]() -> std::shared_ptr<detail::CallerStreams> {
        check_stop(options, method);
        Outgoing request = core->compose(Outgoing::Form::single, 1, options);
        request.call(method, arguments, meta_of(options, core->options()));
        request.finish();
        const std::string shared = core->session_for(request);
        CallOptions later = options;  // for requests that fetch tensors of the call's messages
        later.timeout.reset();
        const auto call = shared_in_its_process(
            new Streaming({core, session, std::move(later), request.first_id(), std::string(method), shared,
                           core->connect_web_socket(method, options, shared, times.deadline)}));
        try {
            call->open(request, times.deadline);
        } catch (const RpcError& error) {
            const bool own_session = options.session.empty() && !shared.empty();
            const bool unknown = error.is(ErrorCode::unknown_or_expired) && details_of(error).kind == "session";
            if (!own_session || !unknown) throw;
            core->forget_session(shared);
        }
        return call;
    };
    return core->counted(times.start, [&] { return core->retried(options, times, attempt); });
}

}  // namespace shared_tensor::client
