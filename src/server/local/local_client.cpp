#include "server/local/local_client.hpp"

#include <atomic>
#include <new>
#include <system_error>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::server {

/// One mapping of a segment of the client, for one tensor.
class LocalClient::Loan final : public local::ReceivedMemory {
public:
    Loan(std::shared_ptr<LocalClient> client, std::string segment, std::string mapped_as,
         std::unique_ptr<local::Mapping> mapping)
        : client_(std::move(client)),
          segment_(std::move(segment)),
          mapped_as_(std::move(mapped_as)),
          mapping_(std::move(mapping)) {}

    // local::ReceivedMemory
    const local::Mapping& mapping() const override { return *mapping_; }
    const std::string& principal() const override { return client_->lease_holder_.principal; }
    bool sender_may_write() const override { return true; }
    local::SegmentUsePointer pass_on(const std::shared_ptr<ReceivedMemory>&) override {
        return client_->pass_on(*this);
    }

    const std::string& segment() const { return segment_; }
    const std::string& mapped_as() const { return mapped_as_; }
    bool has_ended() const { return ended_.load(); }
    void be_found(const std::shared_ptr<ReceivedMemory>& self) { range_.emplace(self); }
    void be_found_no_more() { range_.reset(); }

    /// Ends the use of the client's segment, once: no tensor shows its bytes any longer, so the client may reuse it.
    void end_use() {
        if (!ended_.exchange(true)) client_->drop_use(segment_, mapped_as_);
    }
    void give_back() noexcept {
        if (mapping_->is_broken()) {
            log::warn("memory that process ", client_->lease_holder_.pid,
                      " lent failed (SIGBUS): its calls at that time got an error");
        }
        try {
            client_->mappings_.put_back(mapped_as_, std::move(mapping_));
        } catch (const std::exception& error) {  // std::bad_alloc; the mapping is unmapped
            log::debug("a mapping is not kept: ", error.what());
        }
        try {
            end_use();
        } catch (const std::exception& error) {
            log::error("a client is not told that its memory is free: ", error.what());
        }
    }

private:
    const std::shared_ptr<LocalClient> client_;
    const std::string segment_, mapped_as_;
    std::unique_ptr<local::Mapping> mapping_;
    std::atomic<bool> ended_{false};
    std::optional<local::ReceivedRange> range_;
};

LocalClient::LocalClient(LocalMemory memory, runtime::LeaseHolder lease_holder, const std::vector<std::string>& devices,
                         const Tell& tell)
    : memory_(std::move(memory)),
      lease_holder_(std::move(lease_holder)),
      tell_(tell),
      devices_(
          std::make_shared<DeviceClient>(memory_.leases, lease_holder_, devices,
                                         [tell](const std::string& lease) { tell("lease.release", "leases", lease); })),
      cuda_ipc_(tensor::make_cuda_ipc_transport(*devices_)),
      shm_(tensor::make_shm_transport(*this)),
      transports_({cuda_ipc_.get(), shm_.get()}) {}

tensor::Viability LocalClient::viable() const {
    return state_.with([](const State& state) { return tensor::Viability{state.ended ? kChannelGone : ""}; });
}

tensor::ShmPeer::Borrowed LocalClient::borrow(const std::string& segment, const std::string&) {
    std::string mapped_as;
    auto source = state_.with([&](State& state) -> std::optional<local::MappingCache::Source> {
        const auto found = state.offered.find(segment);
        if (found == state.offered.end()) return std::nullopt;
        ++found->second.uses;
        mapped_as = found->second.mapped_as;
        return found->second.source;
    });
    if (!source)
        throw InvalidValue("shm.segment", "a segment that was offered on the local channel (segment.offer)",
                           "an unknown one");
    std::unique_ptr<local::Mapping> mapping;
    std::shared_ptr<Loan> loan;
    std::byte* data = nullptr;
    std::size_t size = 0;
    try {
        mapping = mappings_.take(mapped_as, [&] { return *source; });
        mapping->survive_faults(faults_);
        data = mapping->data();
        size = mapping->size();
        loan = std::make_shared<Loan>(shared_from_this(), segment, mapped_as, std::move(mapping));
    } catch (const local::BadSegment& error) {
        drop_use(segment, mapped_as);
        throw InvalidValue("shm.segment", error.what(), "another kind of descriptor");
    } catch (...) {
        if (mapping != nullptr) mappings_.put_back(mapped_as, std::move(mapping));
        drop_use(segment, mapped_as);
        throw;
    }
    // The last tensor may be destroyed on any thread, also during a call. give_back() is expensive, so the background
    // executor runs it.
    Loan* const lent = loan.get();
    std::shared_ptr<local::ReceivedMemory> owner(lent, [loan = std::move(loan)](const void*) mutable {
        loan->be_found_no_more();  // first: the mapping gets another owner
        background_executor().post([loan = std::move(loan)] { loan->give_back(); });
    });
    lent->be_found(owner);
    return {data, size, std::move(owner), [lent] { lent->end_use(); }};
}

LocalClient::Offered* LocalClient::State::find(const std::string& segment, const std::string& mapped_as) {
    const auto found = offered.find(segment);
    return found == offered.end() || found->second.mapped_as != mapped_as ? nullptr : &found->second;
}

/// The result uses the client's segment, but not the loan: so the loan can be taken over or given back while another
/// process reads the segment.
local::SegmentUsePointer LocalClient::pass_on(const Loan& loan) {
    local::MappingCache::Source source;
    std::shared_ptr<const local::ReceivedSegment> received;
    auto known = state_.with([&](State& state) -> local::SegmentUsePointer {
        Offered* const offered = state.find(loan.segment(), loan.mapped_as());
        if (offered == nullptr || loan.has_ended()) return nullptr;
        if (auto found = offered->passed_on.lock()) return found;
        ++offered->uses;
        source = offered->source;
        received = offered->received;
        return nullptr;
    });
    if (known != nullptr || source.descriptor == nullptr) return known;
    const auto self = shared_from_this();
    std::shared_ptr<const void> use(source.descriptor.get(),
                                    [self, segment = loan.segment(), mapped_as = loan.mapped_as()](const void*) {
                                        try {
                                            self->drop_use(segment, mapped_as);
                                        } catch (const std::exception& error) {
                                            log::error("a client is not told that its memory is free: ", error.what());
                                        }
                                    });
    if (received == nullptr) received = std::make_shared<const local::ReceivedSegment>(source.descriptor, source.bytes);
    state_.with([&](State& state) {
        Offered* const offered = state.find(loan.segment(), loan.mapped_as());
        if (offered == nullptr) return;
        if (offered->received == nullptr) offered->received = received;
        received = offered->received;
    });
    auto made = std::make_shared<local::PassedOn>(
        std::move(received), std::move(use),
        [self, segment = loan.segment(), mapped_as = loan.mapped_as()] { self->retire(segment, mapped_as); });
    state_.with([&](State& state) {
        if (Offered* const offered = state.find(loan.segment(), loan.mapped_as())) offered->passed_on = made;
    });
    return made;
}

/// The client's segment may be read by a process that does not tell when it is done.
void LocalClient::retire(const std::string& segment, const std::string& mapped_as) {
    const bool tells = state_.with([&](State& state) {
        Offered* const offered = state.find(segment, mapped_as);
        return offered != nullptr && !std::exchange(offered->retired, true) && !state.ended;
    });
    if (tells) tell_("segment.retire", "segments", segment);
}

void LocalClient::drop_use(const std::string& segment, const std::string& mapped_as) {
    bool withdrawn = false;
    const bool free = state_.with([&](State& state) {
        Offered* const offered = state.find(segment, mapped_as);
        withdrawn = offered == nullptr;
        if (withdrawn || --offered->uses > 0) return false;
        return std::exchange(offered->wanted_back, false) && !offered->retired && !state.ended;
    });
    if (withdrawn) mappings_.forget(mapped_as);  // take() may have run after withdraw() called forget()
    if (free) tell_("segment.free", "segments", segment);
}

local::PooledSegmentPointer LocalClient::take(std::uint64_t bytes) {
    try {
        return memory_.pool.take_place(static_cast<std::size_t>(bytes), lease_holder_.principal);
    } catch (const local::PoolFull& full) {
        throw tensor::CannotLend(full.what());
    } catch (const std::bad_alloc&) {
        throw tensor::CannotLend("the server's machine has no memory left to share");
    } catch (const std::system_error& error) {
        throw tensor::CannotLend(std::string("the server cannot make shared memory: ") + error.what());
    }
}

/// Only segments of the client's principal are lent. In a segment of another principal the client would see the data
/// that is written there later. Memory of a client of this server is never lent: that client may write to it.
std::optional<local::SegmentPlace> LocalClient::find(const void* data, std::uint64_t bytes) const {
    if (auto place = memory_.pool.find(data)) {
        if (place->segment->principal() != lease_holder_.principal) return std::nullopt;
        return local::SegmentPlace{std::move(place->segment), place->offset};
    }
    return local::find_received(data, bytes, [this](const local::ReceivedMemory& memory) {
        return !memory.sender_may_write() && memory.principal() == lease_holder_.principal;
    });
}

/// Records the segment as lent before the client can know the lease: the client may ask for the segment at once.
tensor::Lending LocalClient::lend(local::SegmentUsePointer segment, std::uint64_t bytes,
                                  const codec::TensorPointer& tensor) {
    bool first = false;
    const bool alive = state_.with([&](State& state) {
        if (!state.ended) first = state.lent.insert_or_assign(segment->segment().id(), segment->whole()).second;
        return !state.ended;
    });
    if (!alive) throw tensor::CannotLend(kChannelGone);
    if (first) segment->tell_end(weak_from_this());
    auto lease = lend_under_lease(memory_.leases, lease_holder_, tensor::TransportKind::shm, bytes,
                                  {tensor, [segment = std::move(segment)](bool) { segment->retire(); }},
                                  [&](const std::string&) { return static_cast<bool>(viable()); });
    return {std::move(lease), nullptr};
}

std::string LocalClient::busy() const {
    if (std::string reason = memory_.leases.full(); !reason.empty()) return reason;
    return memory_.pool.full();
}

LocalClient::Offer LocalClient::offer(const std::string& segment, std::shared_ptr<const UniqueFd> descriptor,
                                      std::uint64_t bytes) {
    return state_.with([&](State& state) {
        if (state.ended || state.offered.contains(segment)) return Offer::known;
        auto of_principal = memory_.use != nullptr ? memory_.use->segments.take(1) : Budget::Share();
        auto place = of_principal ? memory_.offered.take(1) : std::nullopt;
        if (!place) return Offer::full;
        local::MappingCache::Source source{std::move(descriptor), static_cast<std::size_t>(bytes)};
        Offered one{std::move(source), std::to_string(++state.offers), 0, false,
                    std::move(*place), std::move(*of_principal)};
        state.offered.emplace(segment, std::move(one));
        return Offer::taken;
    });
}

bool LocalClient::recycle(const std::string& segment) {
    return state_.with([&](State& state) {
        const auto found = state.offered.find(segment);
        if (found == state.offered.end()) return true;
        if (found->second.uses == 0) return !found->second.retired;
        found->second.wanted_back = true;
        return false;
    });
}

void LocalClient::withdraw(const std::string& segment) {
    std::optional<Offered> withdrawn;  // its descriptor is closed, and its end told, outside the lock
    state_.with([&](State& state) {
        const auto found = state.offered.find(segment);
        if (found == state.offered.end()) return;
        withdrawn = std::move(found->second);
        state.offered.erase(found);
    });
    if (withdrawn) mappings_.forget(withdrawn->mapped_as);
}

/// `lent` is released outside the lock: if it is the last reference, the segment's end calls segment_gone().
std::optional<local::MappingCache::Source> LocalClient::lent_segment(const std::string& segment) const {
    const auto lent = state_.with([&](const State& state) -> std::shared_ptr<const local::SegmentFile> {
        const auto found = state.lent.find(segment);
        return found == state.lent.end() ? nullptr : found->second.lock();
    });
    if (lent == nullptr) return std::nullopt;
    return local::MappingCache::Source{lent->for_others(), lent->size(), lent->sharing()};
}

void LocalClient::segment_gone(const std::string& segment) {
    const bool was_lent = state_.with([&](State& state) { return state.lent.erase(segment) > 0; });
    if (was_lent) tell_("segment.gone", "segments", segment);
}

void LocalClient::ended() {
    std::unordered_map<std::string, Offered> offered;  // its descriptors are closed outside the lock
    state_.with([&](State& state) {
        state.ended = true;
        offered.swap(state.offered);
        state.lent.clear();
    });
    for (const auto& [segment, one] : offered)
        mappings_.forget(one.mapped_as);
    devices_->ended();
    end_.request_stop();
}

}  // namespace shared_tensor::server
