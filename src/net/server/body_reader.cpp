#include "net/server/body_reader.hpp"

#include <utility>

namespace shared_tensor::net {

namespace {

MinimumRate rate_of(const ServerOptions& options, const BodyPlan& plan) {
    const auto now = MinimumRate::Clock::now();
    if (plan.binary) return {now, options.body_timeout, options.min_bytes_per_second};
    return MinimumRate::until(now + options.body_timeout);
}

/// Ties the shares to the lifetime of the buffer.
std::shared_ptr<PooledBuffer> with_share(std::shared_ptr<PooledBuffer> body, Shares share) {
    struct Held {
        std::shared_ptr<PooledBuffer> body;
        Shares share;
    };
    PooledBuffer* plain = body.get();
    return {std::make_shared<Held>(Held{std::move(body), std::move(share)}), plain};
}

BodyResult explain(BodyRejection rejection) {
    switch (rejection) {
        case BodyRejection::malformed: return HeadRejection{400, "the chunked body is malformed"};
        case BodyRejection::too_large: return HeadRejection{413, "the body is larger than this server takes"};
        case BodyRejection::too_many_chunks: return HeadRejection{413, "the body comes in too many chunks"};
        case BodyRejection::not_allowed:
            return HeadRejection{503, "too many bytes of requests are in flight; try again later"};
        case BodyRejection::late: return HeadRejection{408, "the body did not arrive in time"};
        case BodyRejection::cut: break;
    }
    return PeerGone{};
}

}  // namespace

BodyResult read_body(ServerContext& context, Stream& stream, InputBuffer& input, const Framing& framing,
                     const BodyPlan& plan) {
    Shares share;
    const auto allow = [&](std::size_t capacity) {
        auto larger = take_shares(context, plan.client_budget.get(), capacity);
        if (larger) share = std::move(*larger);
        return larger.has_value();
    };
    Framing ends = framing;
    if (!ends.chunked) ends.length = ends.length.value_or(0);
    auto result = read_body(stream, input, ends, rate_of(context.options, plan),
                            {plan.max_bytes, context.options.max_chunks, allow}, context.buffers);
    if (const auto* rejection = std::get_if<BodyRejection>(&result)) return explain(*rejection);
    return with_share(std::move(std::get<std::shared_ptr<PooledBuffer>>(result)), std::move(share));
}

std::optional<Shares> take_shares(ServerContext& context, Budget* client, std::size_t bytes) {
    auto of_client = client != nullptr ? client->take(bytes) : std::optional(Budget::Share());
    if (!of_client) return std::nullopt;
    auto of_all = context.body_budget.take(bytes);
    if (!of_all) return std::nullopt;
    return Shares{std::move(*of_all), std::move(*of_client)};
}

std::shared_ptr<PooledBuffer> take_body_buffer(ServerContext& context, Budget* client, std::size_t bytes) {
    auto share = take_shares(context, client, bytes);
    return share ? with_share(context.buffers.take(bytes), std::move(*share)) : nullptr;
}

}  // namespace shared_tensor::net
