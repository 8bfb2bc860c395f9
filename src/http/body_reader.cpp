#include "http/body_reader.hpp"

#include <optional>
#include <utility>

#include "http/body_clock.hpp"
#include "http/chunked_body.hpp"

namespace shared_tensor::http {

namespace {

constexpr HeadFault kTooLarge{413, "the body is larger than this server takes"};
constexpr HeadFault kNoBudget{503, "too many bytes of requests are in flight; try again later"};
constexpr HeadFault kLate{408, "the body did not arrive in time"};

BodyClock clock_of(const ServerOptions& options, const BodyPlan& plan) {
    if (plan.binary) return BodyClock::keep_moving(options.body_timeout, options.min_bytes_per_second);
    return BodyClock::until(std::chrono::steady_clock::now() + options.body_timeout);
}

/// `body` with its share of the budget tied to its lifetime.
std::shared_ptr<PooledBuffer> with_share(std::shared_ptr<PooledBuffer> body, Shares share) {
    struct Held {
        std::shared_ptr<PooledBuffer> body;
        Shares share;
    };
    PooledBuffer* plain = body.get();
    return {std::make_shared<Held>(Held{std::move(body), std::move(share)}), plain};
}

BodyResult read_sized(ServerContext& context, Wire& wire, InputBuffer& input, std::size_t length,
                      const BodyPlan& plan) {
    auto body = take_body_buffer(context, plan.client_budget.get(), length);
    if (body == nullptr) return kNoBudget;
    body->resize(length);
    auto* to = reinterpret_cast<char*>(body->data());
    BodyClock clock = clock_of(context.options, plan);
    ReadFailure failure = ReadFailure::none;
    for (std::size_t done = 0; done < length;) {
        done += read_some(wire, input, to + done, length - done, clock, failure);
        if (failure == ReadFailure::late) return kLate;
        if (failure != ReadFailure::none) return PeerGone{};
    }
    return body;
}

BodyResult explain(ChunkedFault fault) {
    switch (fault) {
        case ChunkedFault::malformed: return HeadFault{400, "the chunked body is malformed"};
        case ChunkedFault::too_large: return kTooLarge;
        case ChunkedFault::too_many_chunks: return HeadFault{413, "the body comes in too many chunks"};
        case ChunkedFault::no_budget: return kNoBudget;
        case ChunkedFault::late: return kLate;
        case ChunkedFault::gone: break;
    }
    return PeerGone{};
}

BodyResult read_chunked(ServerContext& context, Wire& wire, InputBuffer& input, const BodyPlan& plan) {
    Shares share;
    const auto allow = [&](std::size_t capacity) {
        auto larger = take_shares(context, plan.client_budget.get(), capacity);
        if (larger) share = std::move(*larger);
        return larger.has_value();
    };
    BodyClock clock = clock_of(context.options, plan);
    auto result =
        read_chunked_body(context.buffers, wire, input, clock, {plan.max_bytes, context.options.max_chunks, allow});
    if (const auto* fault = std::get_if<ChunkedFault>(&result)) return explain(*fault);
    return with_share(std::move(std::get<std::shared_ptr<PooledBuffer>>(result)), std::move(share));
}

}  // namespace

std::optional<Shares> take_shares(ServerContext& context, BodyBudget* client, std::size_t bytes) {
    auto of_client = client != nullptr ? client->take(bytes) : std::optional(BodyBudget::Share());
    if (!of_client) return std::nullopt;
    auto of_all = context.body_budget.take(bytes);
    if (!of_all) return std::nullopt;
    return Shares{std::move(*of_all), std::move(*of_client)};
}

std::shared_ptr<PooledBuffer> take_body_buffer(ServerContext& context, BodyBudget* client, std::size_t bytes) {
    auto share = take_shares(context, client, bytes);
    return share ? with_share(context.buffers.take(bytes), std::move(*share)) : nullptr;
}

BodyResult read_body(ServerContext& context, Wire& wire, InputBuffer& input, const Framing& framing,
                     const BodyPlan& plan) {
    if (framing.chunked) return read_chunked(context, wire, input, plan);
    const std::uint64_t length = framing.length.value_or(0);
    if (length > plan.max_bytes) return kTooLarge;
    return read_sized(context, wire, input, length, plan);
}

}  // namespace shared_tensor::http
