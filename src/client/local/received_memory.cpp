// The server's segments that this client reads, and passes on to further processes.

#include "client/local/shared_memory.hpp"

#include <atomic>
#include <new>
#include <utility>

#include <shared_tensor/error.hpp>
#include <shared_tensor/value.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/system/fork.hpp"
#include "base/system/host.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::client {

using local::ChannelGone;

namespace {

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
                sharing, trusts_server() ? local::Sender::trusted : local::Sender::anyone};
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
/// The lease is retired if a forked child, or a process that the memory was passed on to, may go on reading it without
/// a time limit.
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

}  // namespace shared_tensor::client
