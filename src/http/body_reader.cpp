#include "http/body_reader.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace shared_tensor::http {

BodyClock::BodyClock(const ServerOptions& options, bool binary)
    : binary_(binary),
      fixed_(std::chrono::steady_clock::now() + options.body_timeout),
      pace_(std::chrono::steady_clock::now(), options.body_stall_timeout, options.min_bytes_per_second) {}

void BodyClock::moved(std::size_t bytes) {
    if (binary_) pace_.moved(bytes, std::chrono::steady_clock::now());
}

SteadyTime BodyClock::deadline() const { return binary_ ? pace_.deadline() : fixed_; }

HeadFault too_large() { return {413, "the body is larger than this server takes"}; }
HeadFault no_budget() { return {503, "too many bytes of requests are in flight; try again later"}; }

std::size_t read_some(Wire& wire, InputBuffer& input, char* to, std::size_t size, BodyClock& clock,
                      std::variant<std::monostate, HeadFault, PeerGone>& outcome) {
    if (!input.empty()) {
        const std::size_t there = std::min(size, input.size());
        std::memcpy(to, input.view().data(), there);
        input.consume(there);
        return there;
    }
    while (true) {
        const WireResult got = wire.read(to, size, Wire::Wait::linger);
        if (got.status == WireStatus::ok) {
            clock.moved(got.bytes);
            return got.bytes;
        }
        if (got.status != WireStatus::again) {
            outcome = PeerGone{};
            return 0;
        }
        if (wait_ready(wire.fd(), POLLIN, clock.deadline()) == Ready::timeout) {
            outcome = HeadFault{408, "the body did not arrive in time"};
            return 0;
        }
    }
}

std::shared_ptr<PooledBuffer> with_share(std::shared_ptr<PooledBuffer> body, BodyBudget::Share share) {
    struct Held {
        std::shared_ptr<PooledBuffer> body;
        BodyBudget::Share share;
    };
    PooledBuffer* plain = body.get();
    return {std::make_shared<Held>(Held{std::move(body), std::move(share)}), plain};
}

BodyResult read_sized_body(ServerContext& context, Wire& wire, InputBuffer& input, std::uint64_t length,
                           const BodyPlan& plan) {
    if (length > plan.max_bytes) return too_large();
    auto share = context.body_budget.take(length);
    if (!share) return no_budget();
    auto body = context.buffers.take(length);
    body->resize(length);
    auto* to = reinterpret_cast<char*>(body->data());
    BodyClock clock(context.options, plan.binary);
    std::variant<std::monostate, HeadFault, PeerGone> outcome;
    for (std::size_t done = 0; done < length;) {
        const std::size_t got = read_some(wire, input, to + done, length - done, clock, outcome);
        if (const auto* fault = std::get_if<HeadFault>(&outcome)) return *fault;
        if (got == 0) return PeerGone{};
        done += got;
    }
    return with_share(std::move(body), std::move(*share));
}

}  // namespace shared_tensor::http
