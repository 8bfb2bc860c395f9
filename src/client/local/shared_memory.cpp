#include "client/local/shared_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include <shared_tensor/error.hpp>
#include <shared_tensor/value.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/system/fork.hpp"
#include "base/system/host.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/version.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::client {

using json_rpc::Json;
using local::ChannelGone;

namespace {

constexpr const char* kOfParent = "the local channel belongs to the process that this one was forked from";

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

std::string detail_of(const json_rpc::Error& error) {
    const auto detail = error.data.is_object() ? error.data.find("detail") : error.data.end();
    const bool has_detail = detail != error.data.end() && detail->is_string();
    return has_detail ? detail->get<std::string>() : error.message;
}

/// The descriptors of received segments that this process keeps open to pass them on.
constinit std::atomic<std::size_t> open_received{0};

/// Null if so many are open that the process could lack descriptors for other purposes.
std::shared_ptr<const UniqueFd> counted(std::shared_ptr<const UniqueFd> descriptor) {
    if (open_received.fetch_add(1) < descriptor_limit() / 8) {
        const UniqueFd* const open = descriptor.get();
        return {open, [descriptor = std::move(descriptor)](const UniqueFd*) mutable {
                    descriptor.reset();
                    open_received.fetch_sub(1);
                }};
    }
    open_received.fetch_sub(1);
    return nullptr;
}

}  // namespace

/// One mapping of a segment of the server, for one tensor that this client has a lease on.
class SharedMemory::Loan final : public local::ReceivedMemory {
public:
    Loan(std::shared_ptr<SharedMemory> the_memory, std::string the_segment, std::string the_lease,
         std::unique_ptr<local::Mapping> the_mapping)
        : memory(std::move(the_memory)),
          segment(std::move(the_segment)),
          lease(std::move(the_lease)),
          mapped(std::move(the_mapping)) {}

    // local::ReceivedMemory
    const local::Mapping& mapping() const override { return *mapped; }
    const std::string& principal() const override { return memory->principal_; }
    bool sender_may_write() const override { return false; }
    local::SegmentUsePointer pass_on(const std::shared_ptr<ReceivedMemory>& self) override {
        if (auto use = passed_on.with([](const auto& held) { return held.lock(); })) return use;
        auto received = memory->received(segment, mapped->size());
        if (received == nullptr) return nullptr;
        const auto use =
            std::make_shared<local::PassedOn>(std::move(received), self, [this] { must_retire.store(true); });
        passed_on.with([&](auto& held) { held = use; });
        return use;
    }

    const std::shared_ptr<SharedMemory> memory;
    const std::string segment, lease;
    std::unique_ptr<local::Mapping> mapped;
    const ForkMark made;
    std::atomic<bool> must_retire{false};  ///< a process that it was passed on to may go on reading
    Guarded<std::weak_ptr<local::PassedOn>> passed_on;
    std::optional<local::ReceivedRange> range;
};

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
                                       [this] { ended(); }})) {
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

tensor::ShmPeer::Borrowed SharedMemory::borrow(const std::string& segment, const std::string& lease) {
    if (lease.empty()) throw InvalidValue("lease", "the id of a lease beside shm", "nothing");
    if (!process_.is_here()) throw expired(kOfParent);
    std::unique_ptr<local::Mapping> mapping = map(segment, lease);
    acknowledgements_.confirm({lease});
    std::byte* data = mapping->data();
    const std::size_t size = mapping->size();
    const std::shared_ptr<Loan> owner(new Loan(shared_from_this(), segment, lease, std::move(mapping)),
                                      [](Loan* ended) { end(std::unique_ptr<Loan>(ended)); });
    owner->range.emplace(owner);
    return {data, size, owner};
}

void SharedMemory::end(std::unique_ptr<Loan> loan) {
    loan->range.reset();  // first: the mapping gets another owner
    SharedMemory& memory = *loan->memory;
    if (!memory.process_.is_here()) return;  // a forked child's copy: the lease belongs to the parent
    const Ended how = !loan->made.is_alone() || loan->must_retire.load() ? Ended::retired : Ended::written;
    // This costs less than a hand-over to the background executor. But if the loan is the last owner of `memory`, the
    // channel would end here, which costs more.
    if (loan->memory.use_count() > 1) {
        if (how == Ended::retired) return memory.give_back(*loan, how);
        if (loan->mapped->forget_writes_if_cheap()) return memory.give_back(*loan, Ended::clean);
    }
    background_executor().post(
        [shared = std::shared_ptr<Loan>(std::move(loan)), how] { shared->memory->give_back(*shared, how); });
}

/// If the segment cannot be mapped, its lease is released at once, because the tensor will not be read.
std::unique_ptr<local::Mapping> SharedMemory::map(const std::string& segment, const std::string& lease) {
    try {
        return mappings_.take(segment, [&] { return ask_for(segment); });
    } catch (const local::BadSegment& error) {
        acknowledgements_.release({lease});
        throw InvalidValue("shm.segment", error.what(), "another kind of descriptor");
    } catch (const std::bad_alloc&) {
        acknowledgements_.release({lease});
        throw RpcError(static_cast<int>(ErrorCode::response_too_large), "Response too large", {},
                       "this process has no room to map the result: release other tensors, ask for less at a time, "
                       "or raise its limit (ulimit -v)");
    }
}

local::MappingCache::Source SharedMemory::ask_for(const std::string& segment) {
    try {
        auto answer = channel_->ask("segment.get", {{"segment", segment}});
        const auto size = answer.result.is_object() ? answer.result.find("size") : answer.result.end();
        if (size == answer.result.end() || !size->is_number_unsigned() || answer.descriptors.size() != 1)
            throw InvalidValue("shm.segment", "a segment with its size and descriptor", "an answer without them");
        const auto sharing =
            answer.result.value("writable", false) ? local::Sharing::writable : local::Sharing::read_only;
        return {std::make_shared<const UniqueFd>(std::move(answer.descriptors.front())), size->get<std::size_t>(),
                sharing};
    } catch (const json_rpc::Error& error) {
        std::string data;
        json_rpc::print_json(error.data, data);
        throw TensorExpired(
            error.code, error.message, data,
            "the result's memory is not lent to this client any more: " + error.message + "; call again");
    } catch (const ChannelGone& gone) {
        throw expired(gone.what());
    }
}

TensorExpired SharedMemory::expired(std::string_view why) {
    return {static_cast<int>(ErrorCode::unknown_or_expired),
            "Unknown or expired",
            {},
            "the result's memory is no longer available: " + std::string(why) + "; call again"};
}

/// The server may use the memory again as soon as it knows of the release, so this process drops its writes first.
/// If a forked child, or a process that the memory was passed on to, may go on reading it without a time limit, the
/// server must not use it again.
void SharedMemory::give_back(Loan& loan, Ended how) noexcept {
    try {
        if (how == Ended::retired || !viable()) mappings_.forget(loan.segment);
        mappings_.put_back(loan.segment, std::move(loan.mapped), how != Ended::written);
        if (how == Ended::retired) return acknowledgements_.retire(loan.lease);
        acknowledgements_.release({loan.lease});
    } catch (const std::exception& error) {
        log::debug("a lease could not be released, so it ends with its channel: ", error.what());
    }
}

local::PooledSegmentPointer SharedMemory::take(std::uint64_t bytes) {
    try {
        return pool_->take(static_cast<std::size_t>(bytes), "");
    } catch (const std::bad_alloc&) {
        throw tensor::CannotLend("this process has no more memory to share");
    } catch (const std::system_error& error) {
        throw tensor::CannotLend(std::string("this process cannot make shared memory: ") + error.what());
    }
}

/// When the last tensor in the memory ends, the server is asked whether it still uses the memory.
std::shared_ptr<const void> SharedMemory::owner_of(local::PooledSegmentPointer segment) {
    std::byte* const data = segment->data();
    return {data, [segment = std::move(segment), self = weak_from_this(), process = process_](const void*) mutable {
                segment.reset();
                if (process.is_here()) in_background(self, [](SharedMemory& memory) { memory.ask_back(); });
            }};
}

TensorRef SharedMemory::make_tensor(std::span<const std::int64_t> shape, DType dtype) {
    const std::uint64_t bytes = TensorRef::count_bytes({shape.begin(), shape.end()}, dtype);
    if (bytes == 0) return tensor::allocate(dtype, shape);
    try {
        auto segment = pool_->take_place(static_cast<std::size_t>(bytes), "");
        std::byte* const data = segment->data();
        return tensor::view_of(data, owner_of(std::move(segment)), dtype, shape, {});
    } catch (const std::bad_alloc&) {  // no more memory to share
    } catch (const std::system_error&) {
    }
    return tensor::allocate(dtype, shape);
}

MemoryBlock SharedMemory::hand_over(local::ImmutableMemory& written) {
    auto segment = handed_over_->adopt(written.seal(), written.size(), "");
    std::byte* const data = segment->data();
    return {data, owner_of(std::move(segment))};
}

bool SharedMemory::seal(const void* data, std::uint64_t bytes) {
    const auto place = pool_->find(data);
    return place && place->segment->segment().size() / 2 <= bytes && place->segment->seal();
}

/// The server's segment, under an id of this process. The server sends its descriptor again: most processes pass no
/// memory on, so they keep none.
std::shared_ptr<const local::ReceivedSegment> SharedMemory::received(const std::string& segment, std::size_t bytes) {
    const auto known = [&](const Received& all) {
        const auto found = all.find(segment);
        return found == all.end() ? nullptr : found->second;
    };
    if (auto found = received_.with(known)) return found;
    try {
        auto source = ask_for(segment);
        auto descriptor = source.bytes == bytes ? counted(std::move(source.descriptor)) : nullptr;
        if (descriptor == nullptr) return nullptr;
        const auto made = std::make_shared<const local::ReceivedSegment>(std::move(descriptor), bytes);
        return received_.with([&](Received& all) { return all.try_emplace(segment, made).first->second; });
    } catch (const std::exception& error) {
        log::debug("memory of a server is copied instead of passed on: ", error.what());
    }
    return nullptr;
}

/// A server of another user gets copies: the segment may have further data of this user, now or later.
std::optional<local::SegmentPlace> SharedMemory::find(const void* data, std::uint64_t bytes) const {
    for (const local::SegmentPool* const own : {pool_.get(), handed_over_.get()}) {
        auto place = own->find(data);
        if (!place) continue;
        if (place->segment->segment().differs(place->offset, bytes)) return std::nullopt;
        return local::SegmentPlace{std::move(place->segment), place->offset};
    }
    const uid_t server = channel_->peer().uid;
    if (server != ::geteuid() && server != 0) return std::nullopt;
    return local::find_received(data, bytes, [](const local::ReceivedMemory&) { return true; });
}

bool SharedMemory::Offered::is_viewed() const {
    return std::any_of(keep.begin(), keep.end(), [](const auto& one) { return one->is_own() && one.use_count() > 1; });
}

tensor::Lending SharedMemory::lend(local::SegmentUsePointer segment, std::uint64_t, const codec::TensorPointer&) {
    const std::string id = segment->segment().id();
    std::promise<void> known;
    bool first = false, gone = false;
    std::shared_future<void> ready = state_.with([&](State& state) {
        gone = state.gone;
        if (gone) return std::shared_future<void>();
        Offered& offered = state.offered[id];
        first = !offered.known.valid();
        if (first) offered.known = known.get_future().share();
        if (std::find(offered.keep.begin(), offered.keep.end(), segment) == offered.keep.end())
            offered.keep.push_back(segment);
        offered.lent_again |= std::exchange(offered.asked_back, false);
        ++offered.in_flight;
        return offered.known;
    });
    if (gone) throw tensor::CannotLend("the local channel is closed");
    auto use = std::make_shared<InFlight>([self = weak_from_this(), id](bool answered) {
        if (const auto alive = self.lock()) alive->finished(id, answered);
    });
    if (first) {
        try {
            const local::SegmentFile& offered = segment->segment();
            segment->tell_end(weak_from_this());
            channel_->ask("segment.offer", {{"segment", id}, {"size", offered.size()}}, {offered.descriptor()});
            known.set_value();
        } catch (...) {
            known.set_exception(std::current_exception());
            state_.with([&](State& state) { state.offered[id].known = {}; });  // a later tensor in it may try again
        }
    }
    try {
        ready.get();
    } catch (const json_rpc::Error& error) {
        throw tensor::CannotLend(detail_of(error));
    } catch (const std::exception& error) {
        throw tensor::CannotLend(error.what());
    }
    return {{}, std::move(use)};
}

void SharedMemory::finished(const std::string& segment, bool answered) {
    const bool last = state_.with([&](State& state) {
        const auto found = state.offered.find(segment);
        if (found == state.offered.end()) return false;
        found->second.uncertain |= !answered;
        return --found->second.in_flight == 0;
    });
    if (last) ask_back();
}

/// Asks for the segments that this process no longer uses. The server reports when it no longer uses them either.
void SharedMemory::ask_back() {
    std::vector<std::string> wanted;
    std::vector<local::SegmentUsePointer> lost;
    state_.with([&](State& state) {
        for (auto& [id, one] : state.offered) {
            if (one.keep.empty() || one.in_flight > 0 || one.is_viewed()) continue;
            if (one.uncertain) {
                std::move(one.keep.begin(), one.keep.end(), std::back_inserter(lost));
                one.keep.clear();
            } else if (!std::exchange(one.asked_back, true)) {
                wanted.push_back(id);
            }
        }
    });
    for (const auto& one : lost)
        one->retire();  // the server is told when the segment is gone
    lost.clear();
    if (!wanted.empty()) came_back(ask_free("segment.recycle", {{"segments", wanted}}));
}

void SharedMemory::came_back(const std::vector<std::string>& segments) {
    std::vector<local::SegmentUsePointer> back;  // its use ends outside the lock
    state_.with([&](State& state) {
        for (const std::string& id : segments) {
            const auto found = state.offered.find(id);
            if (found == state.offered.end() || !found->second.asked_back) continue;
            found->second.asked_back = found->second.lent_again = false;
            std::move(found->second.keep.begin(), found->second.keep.end(), std::back_inserter(back));
            found->second.keep.clear();
        }
    });
}

/// If a segment was lent again after it was asked back, the message may be of the time before: asks once more.
void SharedMemory::told_free(const std::vector<std::string>& segments) {
    std::vector<std::string> sure;
    state_.with([&](State& state) {
        for (const std::string& id : segments) {
            const auto found = state.offered.find(id);
            if (found == state.offered.end()) continue;
            if (!std::exchange(found->second.lent_again, false)) {
                sure.push_back(id);
            } else {
                found->second.asked_back = false;
            }
        }
    });
    came_back(sure);
    if (sure.size() < segments.size()) ask_back();
}

/// A process may go on reading these segments without telling when it is done: they are never used again.
void SharedMemory::retire(const std::vector<std::string>& segments) {
    state_.with([&](State& state) {
        for (const std::string& id : segments) {
            if (const auto found = state.offered.find(id); found != state.offered.end()) found->second.uncertain = true;
        }
    });
    ask_back();
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

void SharedMemory::segment_gone(const std::string& segment) {
    in_background(weak_from_this(), [segment](SharedMemory& memory) { memory.tell_gone(segment); });
}

void SharedMemory::tell_gone(const std::string& segment) {
    const bool known = state_.with([&](State& state) { return state.offered.erase(segment) > 0; });
    if (known) channel_->tell("segment.gone", "segments", std::span(&segment, 1));
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
