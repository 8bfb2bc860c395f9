// The segments that this client lends to the server: its own, and those that it received from other processes.

#include "client/local/shared_memory.hpp"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "tensor/memory.hpp"

namespace shared_tensor::client {

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

bool SharedMemory::trusts_server() const {
    const uid_t server = channel_->peer().uid;
    return server == ::geteuid() || server == 0;
}

/// A server of another user gets copies: the segment may have further data of this user, now or later.
std::optional<local::SegmentPlace> SharedMemory::find(const void* data, std::uint64_t bytes) const {
    for (const local::SegmentPool* const own : {pool_.get(), handed_over_.get()}) {
        auto place = own->find(data);
        if (!place) continue;
        if (place->segment->segment().differs(place->offset, bytes)) return std::nullopt;
        return local::SegmentPlace{std::move(place->segment), place->offset};
    }
    if (!trusts_server()) return std::nullopt;
    return local::find_received(data, bytes, [](const local::ReceivedMemory&) { return true; });
}

bool SharedMemory::Offered::is_viewed() const {
    return std::any_of(keep.begin(), keep.end(), [](const auto& one) { return one->is_own() && one.use_count() > 1; });
}

/// Called in a catch clause. A later tensor in the segment may try again.
void SharedMemory::not_offered(const std::string& segment, std::promise<void>& known, bool is_rejected) {
    known.set_exception(std::current_exception());
    bool is_clear = is_rejected;
    try {  // without an answer the server may take the offer later: it gives it up before it gets another one
        if (!is_clear) is_clear = channel_->tell("segment.gone", "segments", std::span(&segment, 1));
    } catch (const std::bad_alloc&) {  // then the next offer tells it
    }
    state_.with([&](State& state) {
        Offered& offered = state.offered[segment];
        offered.known = {};
        offered.gone_untold = !is_clear;
    });
}

/// Another call may have made the offer, so this one's limits hold here too.
void SharedMemory::wait_for_offer(const std::shared_future<void>& ready) {
    const std::stop_token stop = local::WaitLimit::stop(), end = local::WaitLimit::end();
    const SteadyTime deadline = local::WaitLimit::deadline(SteadyTime::max());
    while (ready.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
        if (stop.stop_requested() || end.stop_requested() || real_clock().now() >= deadline)
            throw local::ChannelGone("another call offers this memory, and the server does not answer");
    }
}

tensor::Lending SharedMemory::lend(local::SegmentUsePointer segment, std::uint64_t, const codec::TensorPointer&) {
    const std::string id = segment->segment().id();
    std::promise<void> known;
    bool first = false, gone = false, gone_untold = false;
    std::shared_future<void> ready = state_.with([&](State& state) {
        gone = state.gone;
        if (gone) return std::shared_future<void>();
        Offered& offered = state.offered[id];
        first = !offered.known.valid();
        if (first) offered.known = known.get_future().share();
        gone_untold = offered.gone_untold;
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
            if (gone_untold && !channel_->tell("segment.gone", "segments", std::span(&id, 1)))
                throw local::ChannelGone("the server does not read");
            channel_->ask("segment.offer", {{"segment", id}, {"size", offered.size()}}, {offered.for_others()});
            state_.with([&](State& state) { state.offered[id].gone_untold = false; });
            known.set_value();
        } catch (const json_rpc::Error&) {
            not_offered(id, known, true);
        } catch (...) {
            not_offered(id, known, false);
        }
    }
    try {
        wait_for_offer(ready);
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

/// A process may go on reading these segments without telling when it is done.
void SharedMemory::retire(const std::vector<std::string>& segments) {
    state_.with([&](State& state) {
        for (const std::string& id : segments) {
            if (const auto found = state.offered.find(id); found != state.offered.end()) found->second.uncertain = true;
        }
    });
    ask_back();
}

void SharedMemory::segment_gone(const std::string& segment) {
    in_background(weak_from_this(), [segment](SharedMemory& memory) { memory.tell_gone(segment); });
}

void SharedMemory::tell_gone(const std::string& segment) {
    const bool known = state_.with([&](State& state) { return state.offered.erase(segment) > 0; });
    if (known) channel_->tell("segment.gone", "segments", std::span(&segment, 1));
}

}  // namespace shared_tensor::client
