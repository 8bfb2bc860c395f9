#include "processes/remote_function.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/stream.hpp>

#include "base/concurrency/background.hpp"
#include "base/concurrency/clock.hpp"
#include "processes/any_value.hpp"
#include "processes/failure.hpp"
#include "processes/stream_pumps.hpp"

namespace shared_tensor::processes {

namespace {

using std::chrono::milliseconds;

constexpr const char* kRemoteObject = "shared_tensor::processes::RemoteObject";

/// An object in a worker process.
struct RemoteObject {
    ObjectPointer handle;
    RunPointer run;
};

/// Replaces this server's objects by the handles of a worker process, and sets `run` to the run that they are in.
/// Throws InvalidValue.
void to_handles(AnyValue& value, RunPointer& run) {
    for (ObjectPointer& object : value.value.objects) {
        if (object->cpp_type == nullptr || std::string_view(object->cpp_type) != kRemoteObject)
            throw InvalidValue({}, "an object that a function of the worker processes returned", "another object");
        const auto remote = std::static_pointer_cast<RemoteObject>(object->value);
        if (run != nullptr && run != remote->run)
            throw InvalidValue({}, "an object of the same worker process as the others", "an object of another one");
        run = remote->run;
        object = remote->handle;
    }
}

void from_handles(AnyValue& value, const RunPointer& run) {
    for (ObjectPointer& handle : value.value.objects) {
        auto remote = std::make_shared<RemoteObject>(RemoteObject{handle, run});
        handle = std::make_shared<const ObjectCell>(ObjectCell{handle->type, {}, std::move(remote), kRemoteObject});
    }
}

using Arguments = std::vector<std::pair<std::string, AnyValue>>;

/// The arguments of a call that is passed on.
class PassedArguments final : public CallArguments {
public:
    PassedArguments(const Arguments& arguments, const Caller& caller) : arguments_(arguments), caller_(caller) {}

    bool empty() const override { return arguments_.empty() && caller_.session.empty() && caller_.task.empty(); }
    void write(ValueWriter params) const override {
        params.object();
        for (const auto& [name, value] : arguments_)
            Codec<AnyValue>::write(params.member(name), value);
        if (caller_.session.empty() && caller_.task.empty()) return;
        ValueWriter caller = params.member(kCaller);
        caller.array(2);
        caller.append().string(caller_.session);
        caller.append().string(caller_.task);
    }

private:
    const Arguments& arguments_;
    const Caller& caller_;
};

bool has_streams(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& one) { return one.flow != Flow::value; });
}

class RemoteCall final : public BoundCall {
public:
    /// `wanted`: the run whose objects are among the arguments; null: none are.
    RemoteCall(const FunctionRecord& function, std::shared_ptr<Supervisor> supervisor, Arguments arguments,
               RunPointer wanted)
        : function_(function),
          supervisor_(std::move(supervisor)),
          arguments_(std::move(arguments)),
          wanted_(std::move(wanted)) {}

    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
        try {
            Attempt attempt;
            do {
                const Place place = supervisor_->take(context, wanted_);
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
            from_handles(made, run);
            Codec<AnyValue>::write(result, made);
            return {};
        } catch (const TransportFailure& error) {
            if (context.cancelled()) throw CancelledError();
            const std::string end = run->end(kSeenLater);
            if (!end.empty() && !error.may_have_run() && wanted_ == nullptr) return {{}, true};
            return {
                worker_died((end.empty() ? error.what() : end) + (wanted_ != nullptr && !end.empty() ? kLost : ""))};
        } catch (const RpcError& error) {
            return {failure_of(error)};
        }
    }

    AnyValue call(Context& context, const Run& run) {
        const Client client = run.client(std::string(context.caller().principal));
        const PassedArguments passed(arguments_, context.caller());
        CallOptions options;
        if (!context.caller().task.empty()) {
            options.task_ttl = kTaskTtl;
            return as_task(client.with(options).submit<AnyValue>(function_.name(), passed), context);
        }
        options.stop = context.stop_token();
        if (context.deadline() != SteadyTime::max()) options.timeout = time_left(context);
        const Client stoppable = client.with(std::move(options));
        if (!has_streams(function_)) {
            Receipt receipt;
            AnyValue made = stoppable.call<AnyValue>(receipt, function_.name(), passed);
            context.add_copied(receipt.bytes_copied);
            return made;
        }
        return pass_streams(stoppable.stream<AnyValue>(function_.name(), passed), function_, context,
                            supervisor_->pumps());
    }

    /// Reports progress, unlike a plain call.
    static AnyValue as_task(Task<AnyValue> task, Context& context) {
        const std::stop_callback on_cancel(context.stop_token(), [&] {
            background_executor().post([handle = TaskHandle(task)] {
                try {
                    handle.cancel();
                } catch (const RpcError&) {  // its process has ended, or the task has
                }
            });
        });
        task.on_progress([&](const TaskStatus& status) {
            if (status.fraction) context.progress(*status.fraction, status.message);
        });
        Receipt receipt;
        AnyValue made = task.get(receipt);
        context.add_copied(receipt.bytes_copied);
        return made;
    }

    static milliseconds time_left(const Context& context) {
        const auto left = std::chrono::ceil<milliseconds>(context.deadline() - real_clock().now());
        return std::max(left, milliseconds(1));
    }

    static constexpr milliseconds kTaskTtl = std::chrono::seconds(10);
    static constexpr milliseconds kSeenLater = std::chrono::seconds(2);  // the end of a process, after its connections'
    const FunctionRecord& function_;
    const std::shared_ptr<Supervisor> supervisor_;
    const Arguments arguments_;
    const RunPointer wanted_;
};

/// Describes itself as another function.
class Described : public FunctionRecord {
public:
    explicit Described(std::shared_ptr<const FunctionRecord> of) : of_(std::move(of)) {}

    std::string_view name() const override { return of_->name(); }
    const FunctionOptions& options() const override { return of_->options(); }
    std::string where() const override { return of_->where(); }
    std::span<const ParameterInfo> parameters() const override { return of_->parameters(); }
    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        of_->parameter_schema(index, schema);
    }
    void default_value(std::size_t index, ValueWriter value) const override { of_->default_value(index, value); }
    void result_schema(ValueWriter schema) const override { of_->result_schema(schema); }

protected:
    const FunctionRecord& of() const { return *of_; }

private:
    const std::shared_ptr<const FunctionRecord> of_;
};

class RemoteFunction final : public Described {
public:
    RemoteFunction(std::shared_ptr<const FunctionRecord> of, std::shared_ptr<Supervisor> supervisor)
        : Described(std::move(of)), supervisor_(std::move(supervisor)) {}

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        const auto known = parameters();
        std::size_t reading = 0;
        try {
            Arguments arguments;
            RunPointer wanted;
            for (; reading < nodes.size(); ++reading) {
                const std::string& name = known[reading].name;
                if (nodes[reading] != nullptr) {
                    AnyValue value = Codec<AnyValue>::read(ValueReader(source, nodes[reading]));
                    to_handles(value, wanted);
                    arguments.emplace_back(name, std::move(value));
                } else if (known[reading].required) {
                    throw InvalidValue({}, "a value: the parameter is required", "nothing");
                }
            }
            return {std::make_unique<RemoteCall>(*this, supervisor_, std::move(arguments), std::move(wanted)), {}};
        } catch (...) {
            return {nullptr, detail::current_failure_noexcept(known[reading].name)};
        }
    }

private:
    const std::shared_ptr<Supervisor> supervisor_;
};

/// The context of a call that another process passed on.
class PassedContext final : public Context {
public:
    PassedContext(Context& own, std::string_view session, std::string_view task)
        : own_(own), caller_{own.caller().principal, session, task} {}

    void progress(double fraction, std::string_view message) override { own_.progress(fraction, message); }
    bool cancelled() const override { return own_.cancelled(); }
    std::stop_token stop_token() const override { return own_.stop_token(); }
    bool sleep_until(SteadyTime time) const override { return own_.sleep_until(time); }
    SteadyTime deadline() const override { return own_.deadline(); }
    const Caller& caller() const override { return caller_; }
    void log(LogLevel level, std::string_view text) const override { own_.log(level, text); }
    void add_copied(std::uint64_t bytes) override { own_.add_copied(bytes); }
    const detail::CallMemory* memory() const override { return own_.memory(); }
    detail::CallStreams* streams() const override { return own_.streams(); }

private:
    Context& own_;
    const Caller caller_;
};

class PassedCall final : public BoundCall {
public:
    PassedCall(std::unique_ptr<BoundCall> call, std::string session, std::string task)
        : call_(std::move(call)), session_(std::move(session)), task_(std::move(task)) {}

    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
        PassedContext passed(context, session_, task_);
        return call_->run(passed, result);
    }

private:
    const std::unique_ptr<BoundCall> call_;
    const std::string session_, task_;
};

class WorkerFunction final : public Described {
public:
    explicit WorkerFunction(std::shared_ptr<const FunctionRecord> function)
        : Described(std::move(function)),
          parameters_(of().parameters().begin(), of().parameters().end()),
          options_(of().options()) {
        parameters_.push_back({std::string(kCaller), false, Flow::value});
        options_.cached = false;
        options_.concurrency = 0;
        options_.timeout = std::chrono::milliseconds(0);
        if (options_.runs == execution::task) options_.runs = execution::worker;
    }

    const FunctionOptions& options() const override { return options_; }
    std::span<const ParameterInfo> parameters() const override { return parameters_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        if (index < of().parameters().size()) return of().parameter_schema(index, schema);
        schema.boolean(true);
    }
    void default_value(std::size_t index, ValueWriter value) const override {
        if (index < of().parameters().size()) of().default_value(index, value);
    }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        Binding binding = of().bind(source, nodes.first(nodes.size() - 1));
        if (nodes.back() == nullptr || binding.call == nullptr) return binding;
        try {
            const auto caller = Codec<std::vector<std::string>>::read(ValueReader(source, nodes.back(), kCaller));
            binding.call = std::make_unique<PassedCall>(std::move(binding.call), caller.at(0), caller.at(1));
        } catch (...) {
            binding = {nullptr, detail::current_failure_noexcept()};
        }
        return binding;
    }

private:
    std::vector<ParameterInfo> parameters_;
    FunctionOptions options_;
};

}  // namespace

std::shared_ptr<const FunctionRecord> make_remote_function(std::shared_ptr<const FunctionRecord> described,
                                                           std::shared_ptr<Supervisor> supervisor) {
    return std::make_shared<RemoteFunction>(std::move(described), std::move(supervisor));
}

std::shared_ptr<const FunctionRecord> make_worker_function(std::shared_ptr<const FunctionRecord> function) {
    return std::make_shared<WorkerFunction>(std::move(function));
}

}  // namespace shared_tensor::processes
