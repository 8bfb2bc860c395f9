#include "client/local/shared_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <utility>

#include <shared_tensor/error.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/system/fork.hpp"
#include "base/system/host.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/version.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::client {

using json_rpc::Json;
using local::ChannelGone;

namespace {

/// The strings in the list `object[member]`; empty if it is not a list.
std::vector<std::string> texts_of(const Json& object, const char* member) {
    std::vector<std::string> result;
    const auto list = object.is_object() ? object.find(member) : object.end();
    if (list == object.end() || !list->is_array()) return result;
    for (const Json& one : *list) {
        if (one.is_string()) result.push_back(one.get<std::string>());
    }
    return result;
}

}  // namespace

std::string detail_of(const json_rpc::Error& error) {
    const auto detail = error.data.is_object() ? error.data.find("detail") : error.data.end();
    const bool has_detail = detail != error.data.end() && detail->is_string();
    return has_detail ? detail->get<std::string>() : error.message;
}

std::shared_ptr<SharedMemory> SharedMemory::connect(const std::string& path, const std::string& token) {
    const auto made = shared_in_its_process(new SharedMemory(path, token));
    const auto gone = [weak = std::weak_ptr(made)](const std::string& segment) {
        in_background(weak, [segment](SharedMemory& memory) { memory.tell_gone(segment); });
    };
    made->pool_ = std::make_unique<local::SegmentPool>(local::PoolLimits{}, gone);
    constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
    made->handed_over_ = std::make_unique<local::SegmentPool>(local::PoolLimits{.max_bytes = kAny}, gone);
    return made;
}

/// Does nothing if the memory is gone by then.
void SharedMemory::in_background(std::weak_ptr<SharedMemory> memory, std::function<void(SharedMemory&)> work) noexcept {
    background_executor().post([memory = std::move(memory), work = std::move(work)] {
        try {
            if (const auto alive = memory.lock()) work(*alive);
        } catch (const std::exception& error) {  // no memory
            log::debug("work on shared memory was left undone: ", error.what());
        }
    });
}

SharedMemory::SharedMemory(const std::string& path, std::string token)
    : token_(std::move(token)),
      principal_("uid:" + std::to_string(::geteuid())),
      acknowledgements_(
          [this](std::chrono::milliseconds delay, std::function<void()> work) {
              background_executor().post_after(delay, [self = weak_from_this(), work = std::move(work)] {
                  if (const auto alive = self.lock()) work();
              });
          },
          [this](const char* method, std::span<const std::string> leases) {
              channel_->tell(method, "leases", leases);
          }),
      devices_(*this),
      cuda_ipc_(tensor::make_cuda_ipc_transport(devices_)),
      shm_(tensor::make_shm_transport(*this)),
      transports_({cuda_ipc_.get(), shm_.get()}),
      channel_(std::make_unique<local::Channel>(
          path, local::Channel::Events{[this](const json_rpc::Request& request) { notified(request); },
                                       [this] { ended(); }, [this](const Json& result) { came_too_late(result); }})) {
    try {
        session_ = open_session(false);
    } catch (const json_rpc::Error& error) {
        throw ChannelGone("the server rejected the local channel: " + detail_of(error));
    }
}

/// The channel ends first, because its events use the other members.
SharedMemory::~SharedMemory() {
    channel_.reset();
    ended();
}

/// Closes a session whose opener no longer waits for it, and takes back what the server no longer uses. Memory of the
/// server ends by itself, since nobody confirms it.
void SharedMemory::came_too_late(const Json& result) {
    in_background(weak_from_this(), [result](SharedMemory& memory) {
        const std::string session = json_rpc::text_member(result, "session");
        if (!session.empty()) memory.channel_->tell("session.close", Json{{"session", session}});
        const std::vector<std::string> free = texts_of(result, "free");
        memory.told_free(free);
        memory.devices_.released(free);
    });
}

std::string SharedMemory::open_stateful_session() {
    std::string session = open_session(true);
    stateful_.with([&](auto& all) { all.insert(session); });
    return session;
}

void SharedMemory::session_closed(const std::string& session) {
    stateful_.with([&](auto& all) { all.erase(session); });
}

bool SharedMemory::has(const std::string& session) const {
    return session == session_ || stateful_.with([&](const auto& all) { return all.contains(session); });
}

std::string SharedMemory::open_session(bool keeps_state) {
    Json devices = Json::array();
    for (const tensor::DeviceInfo& device : tensor::Devices::of_process().list())
        devices.push_back(device.uuid);
    Json params{{"protocol", kNewestProtocol},
                {"keeps_state", keeps_state},
                {"boot_id", boot_id()},
                {"pid_namespace", pid_namespace()},
                {"devices", std::move(devices)}};
    if (!token_.empty()) params["token"] = token_;
    const auto answer = channel_->ask("session.open", std::move(params));
    const auto session = answer.result.is_object() ? answer.result.find("session") : answer.result.end();
    if (session == answer.result.end() || !session->is_string())
        throw ChannelGone("the process on the local channel is not a shared-tensor-server");
    const auto protocol = answer.result.find("protocol");
    const std::string version =
        protocol == answer.result.end() || !protocol->is_string() ? "0.1" : protocol->get<std::string>();
    if (const std::string mismatch = protocol_mismatch(version, "this client", "the server"); !mismatch.empty()) {
        log::warn(mismatch);
        throw ChannelGone(mismatch);
    }
    if (const auto offered_transports = answer.result.find("transports");
        offered_transports_.is_null() && offered_transports != answer.result.end())
        offered_transports_ = *offered_transports;
    const auto caller = answer.result.find("caller");
    if (session_.empty() && caller != answer.result.end() && caller->is_string())
        principal_ = caller->get<std::string>();
    devices_.connected(channel_->peer().pid, texts_of(answer.result, "devices"));
    return session->get<std::string>();
}

json_rpc::Json SharedMemory::offered_transports() const {
    Json offered_transports = offered_transports_;
    if (std::string reason = devices_.rejected(); !reason.empty() && offered_transports.is_object())
        offered_transports["cuda_ipc"] = {{"usable", false}, {"reason", std::move(reason)}};
    return offered_transports;
}

std::string SharedMemory::accepted() const {
    return transports_.viable(tensor::TransportKind::cuda_ipc) ? "cuda_ipc, shm" : "shm";
}

std::vector<std::string> SharedMemory::ask_free(const char* method, Json params) const noexcept {
    try {
        return texts_of(channel_->ask(method, std::move(params)).result, "free");
    } catch (const std::exception& error) {
        log::debug("could not ask the server (", method, "): ", error.what());
    } catch (const json_rpc::Error& error) {
        log::debug("could not ask the server (", method, "): ", error.message);
    }
    return {};
}

tensor::Viability SharedMemory::viable() const {
    if (!process_.is_here()) return {kOfParent};
    return {state_.with([](const State& state) { return state.gone; }) ? "the local channel is closed" : ""};
}

void SharedMemory::notified(const json_rpc::Request& request) {
    auto segments = texts_of(request.params, "segments"), leases = texts_of(request.params, "leases");
    in_background(weak_from_this(), [segments = std::move(segments), leases = std::move(leases),
                                     method = request.method](SharedMemory& memory) {
        memory.devices_.released(leases);
        if (method == "segment.free") return memory.told_free(segments);
        if (method == "segment.retire") return memory.retire(segments);
        for (const std::string& segment : segments) {
            memory.mappings_.forget(segment);
            (void)memory.received_.with([&](Received& all) { return all.extract(segment); });  // ends without the lock
        }
    });
}

/// Received memory is let go on the background executor: it may be the last owner of a SharedMemory, even of this one,
/// which must not be destroyed on the thread of its channel.
void SharedMemory::ended() {
    std::unordered_map<std::string, Offered> offered;
    state_.with([&](State& state) {
        state.gone = true;
        offered.swap(state.offered);
    });
    std::vector<local::SegmentUsePointer> passed_on;
    for (auto& [id, one] : offered) {
        for (auto& use : one.keep) {
            use->retire();
            if (!use->is_own()) passed_on.push_back(std::move(use));
        }
    }
    Received received = received_.with([](Received& all) { return std::exchange(all, {}); });
    if (!passed_on.empty() || !received.empty())
        background_executor().post([passed_on = std::move(passed_on), received = std::move(received)] {});
    devices_.ended();
}

}  // namespace shared_tensor::client
