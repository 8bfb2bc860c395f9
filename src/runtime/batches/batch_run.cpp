#include "runtime/batches/batches.hpp"

#include <algorithm>
#include <atomic>
#include <list>
#include <stop_token>
#include <utility>

#include "base/log/log.hpp"

namespace shared_tensor::runtime {

namespace {

using Calls = std::vector<WaitingCallPointer>;
using StopCallback = std::stop_callback<std::function<void()>>;

/// Cancels a joined run when all of its calls are cancelled.
class CancelWithAll {
public:
    CancelWithAll(const Calls& calls, Execution& joined) : left_(calls.size()) {
        for (const auto& call : calls) {
            callbacks_.emplace_back(call->run->stop_token(), [this, &joined] {
                if (left_.fetch_sub(1) == 1) joined.cancel();
            });
        }
    }

private:
    std::atomic<std::size_t> left_;
    std::list<StopCallback> callbacks_;
};

std::int64_t total_rows(const Calls& calls) {
    std::int64_t rows = 0;
    for (const auto& call : calls)
        rows += call->arguments.rows;
    return rows;
}

/// Null if the joined arguments do not fit the function, as with a compiled model that has a fixed number of rows.
std::shared_ptr<Execution> make_joined(const FunctionTable::Entry& function, const Calls& calls,
                                       const detail::CallMemory* memory) {
    std::vector<const BatchArguments*> arguments;
    SteadyTime deadline = SteadyTime::min();
    for (const auto& call : calls) {
        arguments.push_back(&call->arguments);
        deadline = std::max(deadline, call->run->deadline());
    }
    Binding binding = bind_joined(*function.shared, arguments);
    if (binding.call == nullptr) {
        if (function.batches->is_first_misfit()) {
            log::warn(function.shared->name(),
                      " is batched, but does not take joined arguments, so its calls run alone: ",
                      to_error(*binding.failure).data.dump());
        }
        return nullptr;
    }
    Execution::Setup setup;
    setup.function = function.shared;
    setup.call = std::move(binding.call);
    setup.owner.principal = calls.front()->run->caller().principal;
    setup.deadline = deadline;
    setup.memory = memory;
    setup.rows = total_rows(calls);
    return std::make_shared<Execution>(std::move(setup));
}

/// Ends each call with its rows. A result that is kept gets rows of its own, so that it does not keep those of the
/// other calls in memory. Throws std::bad_alloc, and then ends no call.
void share_out(const codec::Value& result, const Calls& calls) {
    std::vector<codec::Value> parts;
    std::int64_t first = 0;
    for (const auto& call : calls) {
        const std::int64_t last = first + call->arguments.rows;
        parts.push_back(rows_of(result, first, last, call->run->is_kept() ? Views::copied : Views::allowed));
        first = last;
    }
    for (std::size_t i = 0; i < calls.size(); ++i)
        calls[i]->run->end(std::move(parts[i]));
}

/// Runs the calls as one. False if each must run alone instead.
bool run_joined(const FunctionTable::Entry& function, const Calls& calls, const detail::CallMemory* memory,
                const std::function<void()>& abandoned) {
    const auto joined = make_joined(function, calls, memory);
    if (joined == nullptr) return false;
    for (const auto& call : calls)
        call->arguments.values.clear();  // their tensors were copied
    joined->on_cancelled(abandoned);
    joined->observe({{},
                     [&](double fraction, std::string_view message) {
                         for (const auto& call : calls)
                             call->run->progress(fraction, message);
                     },
                     {}});
    {
        const CancelWithAll cancel(calls, *joined);
        joined->run();
    }
    function.run_time->note_batch(calls.size());
    const OutcomePointer outcome = joined->outcome();
    if (outcome->failed()) return false;
    share_out(*outcome->value(), calls);
    return true;
}

}  // namespace

void run_batch(const FunctionTable::Entry& function, Calls calls, const detail::CallMemory* memory,
               const std::function<void()>& abandoned) noexcept {
    std::erase_if(calls, [](const auto& call) { return !call->run->begin(); });
    bool done = false;
    try {
        done = calls.size() > 1 && run_joined(function, calls, memory, abandoned);
    } catch (const std::exception&) {  // no memory: one call alone needs less
    }
    if (done) return;
    for (const auto& call : calls) {
        call->arguments.values.clear();
        const StopCallback on_cancel(call->run->stop_token(), abandoned);
        call->run->go();
    }
}

}  // namespace shared_tensor::runtime
