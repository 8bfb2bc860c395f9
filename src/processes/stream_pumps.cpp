#include "processes/stream_pumps.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <shared_tensor/stream.hpp>

#include "base/log/log.hpp"

namespace shared_tensor::processes {

namespace {

void pass_items(Reader<AnyValue>& from, Writer<AnyValue>& to) {
    while (const auto item = from.next()) {
        if (!to.write(*item)) return;
    }
}

/// Passes a stream to the worker. If the caller's stream breaks off, the writer's destructor cancels the call.
void pass_in(Reader<AnyValue> from, Writer<AnyValue> to) {
    try {
        Writer<AnyValue> writer(std::move(to));
        pass_items(from, writer);
        writer.end();
    } catch (const std::exception& error) {  // the call is over, or cancelled
        log::debug("a stream to a worker process ended: ", error.what());
    }
}

}  // namespace

void Pumps::start(std::function<void()> work) {
    std::list<Pump> done;  // joined outside the lock
    pumps_.with([&](std::list<Pump>& all) {
        for (auto at = all.begin(); at != all.end();) {
            const auto next = std::next(at);
            if (at->is_done) done.splice(done.end(), all, at);
            at = next;
        }
        std::list<Pump> started(1);
        Pump& pump = started.front();
        pump.thread = std::jthread([&pump, work = std::move(work)]() mutable {
            work();
            work = nullptr;
            pump.is_done = true;
        });
        all.splice(all.end(), started);
    });
}

AnyValue pass_streams(StreamCall<AnyValue> call, const FunctionRecord& function, const Context& context, Pumps& pumps) {
    std::vector<std::function<void()>> to_caller;
    const auto parameters = function.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string& name = parameters[i].name;
        if (parameters[i].flow == Flow::reader) {
            const auto from = std::make_shared<Reader<AnyValue>>(context.streams()->source(i));
            const auto to = std::make_shared<Writer<AnyValue>>(call.writer<AnyValue>(name));
            pumps.start([from, to] { pass_in(std::move(*from), std::move(*to)); });
        } else if (parameters[i].flow == Flow::writer) {
            const auto from = std::make_shared<Reader<AnyValue>>(call.reader<AnyValue>(name));
            const auto to = std::make_shared<Writer<AnyValue>>(context.streams()->sink(i));
            to_caller.emplace_back([from, to, &call] {
                try {
                    pass_items(*from, *to);
                } catch (const std::exception&) {  // the call has failed, which its result tells, or its caller is gone
                    call.cancel();
                }
            });
        }
    }
    std::vector<std::jthread> others;
    while (to_caller.size() > 1) {
        others.emplace_back(std::move(to_caller.back()));
        to_caller.pop_back();
    }
    for (const auto& pass : to_caller)
        pass();
    to_caller.clear();  // ends the streams that the caller does not read to their end; else the function would wait
    others.clear();
    return call.result();
}

}  // namespace shared_tensor::processes
