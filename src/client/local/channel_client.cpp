#include "client/local/channel_client.hpp"

#include <future>
#include <optional>
#include <system_error>
#include <utility>

#include "base/log/log.hpp"
#include "protocol/json_rpc/parse.hpp"
#include "protocol/json_rpc/parse_responses.hpp"
#include "protocol/json_rpc/print.hpp"

namespace shared_tensor::client {

using json_rpc::Json;

namespace {

constexpr std::chrono::seconds kPatience{10};  // a live server answers at once
/// A broken promise means that the channel has ended.
template <class T>
T result_of(std::future<T>& future) {
    try {
        return future.get();
    } catch (const std::future_error&) {
        throw ChannelGone("the local channel was closed before the answer came");
    }
}

constexpr json_rpc::ParseLimits kLimits{{20, local::kMaxPacketBytes}, 1};

}  // namespace

ChannelClient::ChannelClient(const std::string& path, Heard heard, std::function<void()> ended)
    : heard_(std::move(heard)), ended_(std::move(ended)) {
    try {
        channel_ = std::make_unique<local::Channel>(
            path,
            local::Channel::Events{[this](local::Packet packet) { received(std::move(packet)); }, [this] { end(); }});
    } catch (const std::system_error& error) {
        throw ChannelGone(error.what());
    }
}

ChannelClient::~ChannelClient() { channel_->close(); }

ChannelClient::Answer ChannelClient::ask(const std::string& method, Json params,
                                         std::vector<std::shared_ptr<const UniqueFd>> descriptors) {
    Promise promise;
    auto future = promise.get_future();
    const auto id = state_.with([&](State& state) -> std::optional<std::uint64_t> {
        if (state.gone) return std::nullopt;
        state.waiting.emplace(state.next_id, std::move(promise));
        return state.next_id++;
    });
    if (!id) throw ChannelGone("the local channel is closed");
    std::string text;
    json_rpc::print(json_rpc::Request{method, std::move(params), Json(*id), nullptr}, text);
    const bool sent = channel_->send({std::move(text), std::move(descriptors)});
    const bool answered = sent && future.wait_for(kPatience) == std::future_status::ready;
    if (!answered) {
        state_.with([&](State& state) { state.waiting.erase(*id); });
        throw ChannelGone("the server does not answer on the local channel");
    }
    auto answer = result_of(future);
    if (const auto* error = std::get_if<json_rpc::Error>(&answer)) throw *error;
    return std::move(std::get<Answer>(answer));
}

bool ChannelClient::tell(const std::string& method, Json params) {
    std::string text;
    json_rpc::print(json_rpc::Request{method, std::move(params), std::nullopt, nullptr}, text);
    return !is_gone() && channel_->send({std::move(text), {}});
}

bool ChannelClient::is_gone() const {
    return state_.with([](const State& state) { return state.gone; });
}

void ChannelClient::received(local::Packet packet) {
    auto parsed = json_rpc::parse(packet.text, kLimits);
    if (auto* message = std::get_if<json_rpc::Message>(&parsed); message != nullptr && !message->is_batch) {
        if (const auto* request = std::get_if<json_rpc::Request>(&message->items.front())) return heard_(*request);
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
        const auto found = state.waiting.find(response.id.get<std::uint64_t>());
        if (found == state.waiting.end()) return;
        asked = std::move(found->second);
        state.waiting.erase(found);
    });
    if (!asked) return;
    if (auto* error = std::get_if<json_rpc::Error>(&response.outcome)) return asked->set_value(std::move(*error));
    asked->set_value(Answer{std::move(std::get<Json>(response.outcome)), std::move(packet.descriptors)});
}

void ChannelClient::end() {
    std::unordered_map<std::uint64_t, Promise> waiting;
    state_.with([&](State& state) {
        state.gone = true;
        waiting.swap(state.waiting);
    });
    waiting.clear();  // breaks the promises, so result_of() throws in the waiting threads
    if (ended_) ended_();
}

}  // namespace shared_tensor::client
