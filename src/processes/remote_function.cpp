#include "processes/remote_function.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/stream.hpp>

#include "base/concurrency/at_end.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/log/current_call.hpp"
#include "base/log/log.hpp"
#include "processes/present_calls.hpp"
#include "processes/stream_pumps.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "runtime/functions/passed_on_call.hpp"
#include "tensor/any_value.hpp"

namespace shared_tensor::processes {

namespace {

using json_rpc::Json;
using std::chrono::milliseconds;

constexpr const char* kRemoteObject = "shared_tensor::processes::RemoteObject";

/// An object in a worker process.
struct RemoteObject {
    ObjectPointer handle;
    RunPointer run;
    const Supervisor* processes;  ///< only compared
};

/// Replaces this server's objects by the handles of a worker process, and sets `run` to the run that they are in.
/// Throws InvalidValue.
void to_handles(AnyValue& value, const Supervisor& processes, RunPointer& run) {
    for (ObjectPointer& object : value.value.objects) {
        if (object->cpp_type == nullptr || std::string_view(object->cpp_type) != kRemoteObject)
            throw InvalidValue({}, "an object that a function of the worker processes returned", "another object");
        const auto remote = std::static_pointer_cast<RemoteObject>(object->value);
        if (remote->processes != &processes)
            throw InvalidValue({}, "an object of this plugin's worker processes", "an object of another plugin's");
        if (run != nullptr && run != remote->run)
            throw InvalidValue({}, "an object of the same worker process as the others", "an object of another one");
        run = remote->run;
        object = remote->handle;
    }
}

void from_handles(AnyValue& value, const Supervisor& processes, const RunPointer& run) {
    for (ObjectPointer& handle : value.value.objects) {
        auto remote = std::make_shared<RemoteObject>(RemoteObject{handle, run, &processes});
        handle = std::make_shared<const ObjectCell>(ObjectCell{handle->type, {}, std::move(remote), kRemoteObject});
    }
}

using Arguments = std::vector<std::pair<std::string, AnyValue>>;

/// The caller of a call that is passed on, the time that the function has, and what the worker's log needs.
struct PassedCaller {
    std::string session, task;
    std::optional<std::int64_t> milliseconds_left;
    bool has_end = false;  ///< nobody waits for the call after this time
    std::string request_id, id, traceparent;
    std::string log_level;  ///< of the server in front
};

/// The arguments of a call that is passed on.
class PassedArguments final : public CallArguments {
public:
    PassedArguments(const Arguments& arguments, PassedCaller caller)
        : arguments_(arguments), caller_(std::move(caller)) {}

    bool empty() const override { return false; }
    void write(ValueWriter params) const override {
        params.object();
        for (const auto& [name, value] : arguments_)
            Codec<AnyValue>::write(params.member(name), value);
        ValueWriter caller = params.member(kCaller);
        caller.array(8);
        caller.append().string(caller_.session);
        caller.append().string(caller_.task);
        Codec<std::optional<std::int64_t>>::write(caller.append(), caller_.milliseconds_left);
        caller.append().boolean(caller_.has_end);
        for (const std::string* text : {&caller_.request_id, &caller_.id, &caller_.traceparent, &caller_.log_level})
            caller.append().string(*text);
    }

private:
    const Arguments& arguments_;
    const PassedCaller caller_;
};

PassedCaller caller_of(const Context& context, bool has_end) {
    const Caller& caller = context.caller();
    PassedCaller passed;
    passed.session = caller.session;
    passed.task = caller.task;
    passed.has_end = has_end;
    passed.log_level = log::name_of(log::level());
    if (current_call != nullptr) {  // of the run of this call
        passed.request_id = current_call->request_id;
        passed.id = current_call->id;
        passed.traceparent = current_call->traceparent;
    }
    if (context.deadline() != SteadyTime::max())
        passed.milliseconds_left = std::chrono::ceil<milliseconds>(context.deadline() - real_clock().now()).count();
    return passed;
}

PassedCaller read_caller(const ValueReader& reader) {
    const auto text = [&](std::size_t place) { return Codec<std::string>::read(reader.element(place)); };
    return {text(0),
            text(1),
            Codec<std::optional<std::int64_t>>::read(reader.element(2)),
            Codec<bool>::read(reader.element(3)),
            text(4),
            text(5),
            text(6),
            text(7)};
}

bool has_streams(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& one) { return one.flow != Flow::value; });
}

class RemoteCall final : public runtime::PassedOnCall {
public:
    /// `wanted`: the run whose objects are among the arguments; null: none are.
    RemoteCall(const FunctionRecord& function, std::shared_ptr<Supervisor> supervisor, Arguments arguments,
               RunPointer wanted)
        : function_(function),
          supervisor_(std::move(supervisor)),
          arguments_(std::move(arguments)),
          wanted_(std::move(wanted)) {}

    void end_at(SteadyTime deadline) override { deadline_ = deadline; }

    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
        try {
            Attempt attempt;
            do {
                const Place place = supervisor_->take(context, wanted_, deadline_);
                attempt = try_once(context, place.run(), result);
            } while (attempt.again);
            return std::move(attempt.failure);
        } catch (const NoProcess& error) {
            return worker_died(error.what());
        } catch (...) {
            return detail::current_failure_noexcept();
        }
    }

private:
    struct Attempt {
        std::optional<CallFailure> failure{};
        bool again = false;  ///< the process has ended before it got the call
    };

    Attempt try_once(Context& context, const RunPointer& run, ValueWriter result) {
        try {
            AnyValue made = call(context, *run);
            from_handles(made, *supervisor_, run);
            Codec<AnyValue>::write(result, made);
            return {};
        } catch (const TransportFailure& error) {
            if (context.cancelled()) throw CancelledError();
            const std::string end = run->end(std::min(kSeenLater, time_left()));
            if (!end.empty() && !error.may_have_run() && wanted_ == nullptr) return {{}, true};
            return {
                worker_died((end.empty() ? error.what() : end) + (wanted_ != nullptr && !end.empty() ? kLost : ""))};
        } catch (const RpcError& error) {
            return {failure_of(error)};
        }
    }

    /// Without end_at(), callers that joined this call may have more time than its first caller. The token ends the
    /// call when all are gone.
    AnyValue call(Context& context, const Run& run) {
        const Client client = run.client(std::string(context.caller().principal));
        const PassedArguments passed(arguments_, caller_of(context, deadline_ != SteadyTime::max()));
        CallOptions options;
        options.stop = context.stop_token();
        if (!context.caller().task.empty()) {
            options.task_ttl = kTaskTtl;
            const auto submitted = client.with(std::move(options)).submit<AnyValue>(function_.name(), passed);
            return as_task(client.task<AnyValue>(submitted.id()), context);
        }
        if (!has_streams(function_)) options.timeout = std::min(kLongest, time_left());
        const Client stoppable = client.with(std::move(options));
        if (has_streams(function_)) {
            return pass_streams(stoppable.stream<AnyValue>(function_.name(), passed), function_, context,
                                supervisor_->pumps());
        }
        Receipt receipt;
        AnyValue made = stoppable.call<AnyValue>(receipt, function_.name(), passed);
        context.add_copied(receipt.bytes_copied);
        return made;
    }

    milliseconds time_left() const {
        return std::chrono::ceil<milliseconds>(std::max(deadline_ - real_clock().now(), SteadyTime::duration(0)));
    }

    /// Reports progress, unlike a plain call.
    AnyValue as_task(Task<AnyValue> task, Context& context) {
        const auto cancel = [this, handle = TaskHandle(task)]() noexcept {
            try {  // on a thread of its own, since a process that hangs does not answer
                supervisor_->pumps().start([handle] {
                    try {
                        handle.cancel();
                    } catch (const RpcError&) {  // its process has ended, or the task has
                    }
                });
            } catch (const std::exception& error) {
                log::warn("a task in a worker process could not be cancelled: ", error.what());
            }
        };
        const std::stop_callback on_cancel(context.stop_token(), cancel);
        task.on_progress([&](const TaskStatus& status) {
            if (status.fraction) context.progress(*status.fraction, status.message);
        });
        Receipt receipt;
        try {
            AnyValue made = task.get(receipt);
            context.add_copied(receipt.bytes_copied);
            return made;
        } catch (const RpcError&) {
            cancel();  // the error may be that the task could not be asked; one that has ended stays as it is
            throw;
        }
    }

    static constexpr milliseconds kLongest = std::chrono::hours(24);
    static constexpr milliseconds kTaskTtl = std::chrono::seconds(10);
    static constexpr milliseconds kSeenLater = std::chrono::seconds(2);  // the end of a process, after its connections'
    const FunctionRecord& function_;
    const std::shared_ptr<Supervisor> supervisor_;
    const Arguments arguments_;
    const RunPointer wanted_;
    SteadyTime deadline_ = SteadyTime::max();
};

/// The options in a worker process: the server in front has the queue, the deadlines and the cache, and joins calls.
/// The limit of calls at once holds here too: in front a call ends with its deadline, here with its function.
FunctionOptions in_worker(FunctionOptions options) {
    options.cached = false;
    options.timeout = milliseconds(0);
    options.batch_rows = 0;
    if (options.runs == execution::task) options.runs = execution::worker;
    return options;
}

class RemoteFunction final : public DescribedFunction {
public:
    RemoteFunction(const Json& described, std::shared_ptr<Supervisor> supervisor)
        : DescribedFunction(described), supervisor_(std::move(supervisor)) {
        // A call that is passed on waits, so it runs on a worker, not on a connection's thread.
        if (options_.runs == execution::inline_) options_.runs = execution::worker;
        for (const Json& parameter : parameters_) {
            const bool alone = parameter.at("schema").dump().find(kExclusive) != std::string::npos;
            access_.push_back(alone ? Access::exclusive : Access::concurrent);
        }
    }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        const auto known = parameters();
        std::size_t reading = 0;
        try {
            Arguments arguments;
            RunPointer wanted;
            for (; reading < nodes.size(); ++reading) {
                const std::string& name = known[reading].name;
                if (nodes[reading] != nullptr) {
                    AnyValue value = tensor::read_any(ValueReader(source, nodes[reading]), access_[reading]);
                    to_handles(value, *supervisor_, wanted);
                    arguments.emplace_back(name, std::move(value));
                } else if (known[reading].required) {
                    throw InvalidValue({}, "a value", "nothing");
                }
            }
            return {std::make_unique<RemoteCall>(*this, supervisor_, std::move(arguments), std::move(wanted)), {}};
        } catch (...) {
            return {nullptr,
                    detail::current_failure_noexcept(reading < known.size() ? known[reading].name : std::string())};
        }
    }

private:
    static constexpr std::string_view kExclusive = R"("x-access":"exclusive")";
    const std::shared_ptr<Supervisor> supervisor_;
    std::vector<Access> access_;  ///< of the objects of each parameter
};

/// The context of a call that another process passed on.
class PassedContext final : public Context {
public:
    PassedContext(Context& own, const CurrentCall& call, const PassedCaller& caller, SteadyTime deadline)
        : own_(own),
          call_(call),
          caller_{own.caller().principal, caller.session, caller.task, caller.traceparent},
          deadline_(deadline) {}

    void progress(double fraction, std::string_view message) override { own_.progress(fraction, message); }
    bool cancelled() const override { return own_.cancelled(); }
    std::stop_token stop_token() const override { return own_.stop_token(); }
    bool sleep_until(SteadyTime time) const override { return own_.sleep_until(time); }
    SteadyTime deadline() const override { return deadline_; }
    const Caller& caller() const override { return caller_; }
    void log(LogLevel level, std::string_view text) const override {
        const InCall in_call(call_);
        own_.log(level, text);
    }
    void add_copied(std::uint64_t bytes) override { own_.add_copied(bytes); }
    const detail::CallMemory* memory() const override { return own_.memory(); }
    detail::CallStreams* streams() const override { return own_.streams(); }

private:
    Context& own_;
    const CurrentCall& call_;
    const Caller caller_;
    const SteadyTime deadline_;
};

class PassedCall final : public BoundCall {
public:
    PassedCall(std::string_view function, std::unique_ptr<BoundCall> call, PassedCaller caller, SteadyTime deadline,
               std::unique_ptr<Presence> presence)
        : function_(function),
          call_(std::move(call)),
          caller_(std::move(caller)),
          deadline_(deadline),
          presence_(std::move(presence)) {}

    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
        const CurrentCall call{function_,    context.caller().principal, caller_.request_id, caller_.id,
                               caller_.task, caller_.traceparent};
        const InCall in_call(call);
        PassedContext passed(context, call, caller_, deadline_);
        presence_->set_context(&passed);
        const AtEnd ended([&] { presence_->set_context(nullptr); });
        return call_->run(passed, result);
    }

private:
    const std::string function_;
    const std::unique_ptr<BoundCall> call_;
    const PassedCaller caller_;
    const SteadyTime deadline_;
    const std::unique_ptr<Presence> presence_;
};

class WorkerFunction final : public FunctionRecord {
public:
    explicit WorkerFunction(std::shared_ptr<const FunctionRecord> function)
        : function_(std::move(function)),
          options_(in_worker(function_->options())),
          parameters_(function_->parameters().begin(), function_->parameters().end()) {
        parameters_.push_back({std::string(kCaller), false, Flow::value});
    }

    std::string_view name() const override { return function_->name(); }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return function_->where(); }
    std::span<const ParameterInfo> parameters() const override { return parameters_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        if (index < function_->parameters().size()) return function_->parameter_schema(index, schema);
        schema.boolean(true);
    }
    void default_value(std::size_t index, ValueWriter value) const override {
        if (index < function_->parameters().size()) function_->default_value(index, value);
    }
    void result_schema(ValueWriter schema) const override { function_->result_schema(schema); }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        const auto own_nodes = nodes.first(nodes.size() - 1);
        if (nodes.back() == nullptr) return function_->bind(source, own_nodes);
        try {
            auto caller = read_caller(ValueReader(source, nodes.back(), kCaller));
            log::set_level(log::parse_level(caller.log_level));
            const SteadyTime deadline = caller.milliseconds_left
                                            ? later(real_clock().now(), milliseconds(*caller.milliseconds_left))
                                            : SteadyTime::max();
            const SteadyTime end = caller.has_end ? deadline : SteadyTime::max();
            auto presence = std::make_unique<Presence>(PresentCall{name(), options_.concurrency, end});
            Binding binding = function_->bind(source, own_nodes);  // may wait for an interpreter's lock
            if (binding.call == nullptr) return binding;
            auto call = std::make_unique<PassedCall>(name(), std::move(binding.call), std::move(caller), deadline,
                                                     std::move(presence));
            return {std::move(call), {}};
        } catch (...) {
            return {nullptr, detail::current_failure_noexcept()};
        }
    }

private:
    const std::shared_ptr<const FunctionRecord> function_;
    const FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
};

}  // namespace

Functions make_remote_functions(std::string_view description, const std::shared_ptr<Supervisor>& supervisor) try {
    Functions functions;
    for (const Json& described : Json::parse(description))
        functions.push_back(std::make_shared<RemoteFunction>(described, supervisor));
    return functions;
} catch (const Json::exception& error) {
    throw std::runtime_error(std::string("a worker process described its functions wrongly: ") + error.what());
}

std::shared_ptr<const FunctionRecord> make_worker_function(std::shared_ptr<const FunctionRecord> function) {
    return std::make_shared<WorkerFunction>(std::move(function));
}

}  // namespace shared_tensor::processes
