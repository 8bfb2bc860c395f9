#include "local/channel/channel.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/concurrency/clock.hpp"
#include "base/log/log.hpp"
#include "base/system/unix_listener.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::local {

using json_rpc::Json;

namespace {

constexpr std::chrono::seconds kSendWithin{2}, kAnswerWithin{10};  // a live server reads and answers at once
constexpr json_rpc::ParseLimits kLimits{{20, kMaxPacketBytes}, 1};

ProcessFd connect_to(const std::string& path) {
    const std::string what = "cannot connect to the local channel " + path;
    const sockaddr_un address = unix_address(path);
    ProcessFd fd = ProcessFd::opened([&] {
        return SHARED_TENSOR_CHECK_ERRNO(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), what);
    });
    SHARED_TENSOR_CHECK_ERRNO(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), what);
    return fd;
}

std::string print(const json_rpc::Request& request) {
    std::string text;
    json_rpc::print(request, text);
    return text;
}

}  // namespace

std::variant<json_rpc::Request, json_rpc::Response> read_request(const Packet& packet) {
    const auto rejected = [](const std::string& detail) {
        return json_rpc::Response{nullptr, json_rpc::invalid_request(detail)};
    };
    if (packet.text.empty()) {
        return rejected("a packet of the local channel has at most " + std::to_string(kMaxPacketBytes) + " bytes and " +
                        std::to_string(kMaxPacketDescriptors) + " descriptors");
    }
    auto parsed = json_rpc::parse(packet.text, kLimits);
    if (auto* invalid = std::get_if<json_rpc::Response>(&parsed)) return std::move(*invalid);
    auto& message = std::get<json_rpc::Message>(parsed);
    if (!message.is_batch) return std::move(message.items.front());
    return rejected("the local channel takes no batches: a packet is one request");
}

OutgoingPacket notification(const char* method, const char* list, std::span<const std::string> ids) {
    Json listed = Json::array();
    for (const std::string& id : ids)
        listed.push_back(id);
    return {print({method, Json{{list, std::move(listed)}}, std::nullopt, nullptr}), {}};
}

Channel::Channel(const std::string& path, Events events) try
    : events_(std::move(events)),
      socket_(connect_to(path)),
      peer_(peer_of(socket_.get())),
      stop_(UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"))),
      thread_(std::make_unique<std::jthread>([this] { receive(); })) {
    ::pthread_setname_np(thread_->native_handle(), "st-channel");
} catch (const std::system_error& error) {
    throw ChannelGone(error.what());
}

/// In a forked child the thread does not exist, and its handle may name another thread. So it is neither joined nor
/// detached.
Channel::~Channel() {
    close();
    if (!process_.is_here()) static_cast<void>(thread_.release());
}

void Channel::close() {
    if (!process_.is_here()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
    if (thread_->joinable()) thread_->join();
    state_.with([](State& state) { state.gone = true; });
    ::shutdown(socket_.get(), SHUT_RDWR);
}

Channel::Answer Channel::ask(const std::string& method, Json params,
                             std::vector<std::shared_ptr<const UniqueFd>> descriptors) {
    if (!process_.is_here())
        throw ChannelGone("the local channel is closed");  // a thread of the parent may lock state_
    Promise promise;
    auto future = promise.get_future();
    const auto id = state_.with([&](State& state) -> std::optional<std::uint64_t> {
        if (state.gone) return std::nullopt;
        state.waiting.emplace(state.next_id, std::move(promise));
        return state.next_id++;
    });
    if (!id) throw ChannelGone("the local channel is closed");
    const auto forgets = [&] { forget(*id); };
    const std::stop_callback stops(WaitLimit::stop(), forgets), ends(WaitLimit::end(), forgets);
    const bool sent = send({print({method, std::move(params), Json(*id), nullptr}), std::move(descriptors)});
    const SteadyTime deadline = WaitLimit::deadline(real_clock().now() + kAnswerWithin);
    // An answer that comes at the deadline is taken: nobody else would know of it.
    const bool answered = sent && future.wait_until(deadline) == std::future_status::ready;
    if (!answered && forget(*id)) throw ChannelGone("the server does not answer on the local channel");
    try {
        auto answer = future.get();
        if (const auto* error = std::get_if<json_rpc::Error>(&answer)) throw *error;
        return std::move(std::get<Answer>(answer));
    } catch (const std::future_error&) {  // a broken promise: see forget() and end()
        throw ChannelGone("the local channel was closed, or the call was stopped, before the answer came");
    }
}

/// Breaks the promise of a request that may wait for an answer. Returns whether it did.
bool Channel::forget(std::uint64_t id) {
    const auto broken = state_.with([&](State& state) { return state.waiting.extract(id); });
    return !broken.empty();
}

bool Channel::tell(const char* method, const char* list, std::span<const std::string> ids) {
    return send(notification(method, list, ids));
}

bool Channel::tell(const char* method, Json params) {
    return send({print({method, std::move(params), std::nullopt, nullptr}), {}});
}

bool Channel::send(const OutgoingPacket& packet) const {
    if (!process_.is_here()) return false;
    const SteadyTime deadline = WaitLimit::deadline(real_clock().now() + kSendWithin);
    while (!state_.with([](const State& state) { return state.gone; })) {
        switch (send_packet(socket_.get(), packet)) {
            case Sent::yes: return true;
            case Sent::gone: return false;
            case Sent::not_now: break;
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - real_clock().now());
        if (left.count() <= 0) return false;
        pollfd writable{socket_.get(), POLLOUT, 0};
        ::poll(&writable, 1, static_cast<int>(left.count()));
    }
    return false;
}

void Channel::receive() {
    for (;;) {
        std::array<pollfd, 2> polled{{{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}}};
        if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
        if (polled[0].revents != 0) return;
        Packet packet;
        const Got got = receive_packet(socket_.get(), packet);
        if (got == Got::end || got == Got::too_big || packet.lost_descriptors) break;
        if (got == Got::packet) received(std::move(packet));
    }
    end();
}

void Channel::received(Packet packet) {
    const auto item = read_request(packet);
    if (const auto* request = std::get_if<json_rpc::Request>(&item)) {
        if (events_.notified) events_.notified(*request);
        return;
    }
    auto responses = json_rpc::parse_responses(packet.text, kLimits);
    auto* list = std::get_if<std::vector<json_rpc::Response>>(&responses);
    if (list == nullptr || list->size() != 1 || !list->front().id.is_number_unsigned()) {
        log::warn("the local channel received a message that is neither an answer nor a notification");
        return;
    }
    json_rpc::Response& response = list->front();
    std::optional<Promise> asked;
    state_.with([&](State& state) {
        if (auto found = state.waiting.extract(response.id.get<std::uint64_t>())) asked = std::move(found.mapped());
    });
    if (!asked) {
        const auto* result = std::get_if<Json>(&response.outcome);
        if (result != nullptr && events_.came_too_late) events_.came_too_late(*result);
        return;
    }
    if (auto* error = std::get_if<json_rpc::Error>(&response.outcome)) return asked->set_value(std::move(*error));
    asked->set_value(Answer{std::move(std::get<Json>(response.outcome)), std::move(packet.descriptors)});
}

/// Breaks the promises of the requests that wait for an answer.
void Channel::end() {
    std::unordered_map<std::uint64_t, Promise> waiting;
    state_.with([&](State& state) {
        state.gone = true;
        waiting.swap(state.waiting);
    });
    waiting.clear();
    if (events_.ended) events_.ended();
}

}  // namespace shared_tensor::local
