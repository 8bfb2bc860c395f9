// Calls that stream.

#include "runtime/calls/dispatcher.hpp"

namespace shared_tensor::runtime {

using json_rpc::Error;

/// Counts one more call that streams while the result lives. Returns null if the limit is reached.
std::shared_ptr<void> Dispatcher::count_stream() {
    const bool counted = streams_->with([&](std::size_t& running) {
        if (running >= options_.max_streams) return false;
        ++running;
        return true;
    });
    if (!counted) return nullptr;
    const auto end = [](Guarded<std::size_t>* streams) {
        streams->with([](std::size_t& running) { --running; });
        streams->notify_all();
    };
    return {streams_.get(), [kept = streams_, end](void*) { end(kept.get()); }};
}

/// A call that streams mostly waits for its client. So it takes no worker, and has a limit of its own.
std::variant<StreamRun, Error> Dispatcher::open_stream(const CallSpec& spec,
                                                       std::shared_ptr<detail::CallStreams> streams,
                                                       std::function<void()> cancelled) {
    auto prepared = prepare(spec, Kind::stream);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);
    std::shared_ptr<void> counted = count_stream();
    if (counted == nullptr) return busy();
    auto place = pool_.try_hold(groups_.of(*ready.function, ready.objects, spec.owner.session));
    if (!place) return busy();
    const bool bounded = spec.timeout || ready.function->shared->options().timeout.count() > 0;
    const SteadyTime deadline = bounded ? clock_->now() + ready.timeout : SteadyTime::max();
    const auto execution = make_execution(ready, spec.owner, deadline, std::move(streams));
    execution->on_cancelled(std::move(cancelled));
    StreamRun run(execution, execution->join(), std::move(*place), std::move(counted));
    count_as_live(execution);
    if (bounded) kept_calls_.end_stream_at(deadline, execution);
    return run;
}

}  // namespace shared_tensor::runtime
