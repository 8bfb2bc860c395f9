// What is found out about a call before it is queued: its arguments, its keys, and its groups.

#include <new>

#include "base/memory/heap.hpp"
#include "runtime/calls/dispatcher.hpp"
#include "runtime/functions/arguments.hpp"

namespace shared_tensor::runtime {

using json_rpc::Error;

namespace {

constexpr std::size_t kMaxKeyBytes = 255;  // clients rely on it: docs/protocol.md

/// For a call that may outlive its request: its caller may write to its memory as soon as the request is answered.
void own_arguments(const codec::LentForCall* lent, codec::TensorPort& port) {
    if (lent == nullptr) return;
    for (const auto& memory : lent->in_use())
        port.take_over(*memory);
}

}  // namespace

std::optional<Error> Dispatcher::reject(const FunctionTable::Entry& function, Kind kind) {
    if (function.streams && kind != Kind::stream) {
        return json_rpc::invalid_request(
            "this function streams: call it over a WebSocket (GET /ws), or, where it only writes, with Accept: "
            "text/event-stream");
    }
    if (function.shared->options().runs == execution::task && kind == Kind::call)
        return json_rpc::invalid_request("this function runs as a task only: call task.submit with {method, params}");
    return std::nullopt;
}

std::variant<Dispatcher::Prepared, Error> Dispatcher::prepare(const CallSpec& spec, Kind kind) const {
    if (draining_.load()) return json_rpc::shutting_down();
    if (!has_memory_reserve()) {
        return json_rpc::out_of_memory(
            "the server has no memory left for calls: let go of results and tensors that it keeps, or call again "
            "later");
    }
    const auto found = spec.function != nullptr ? spec.function : functions_.find(spec.method);
    if (found == nullptr) return json_rpc::method_not_found(spec.method);
    const FunctionTable::Entry& function = *found;
    const FunctionOptions& options = function.shared->options();
    if (auto error = reject(function, kind)) return std::move(*error);
    if (spec.idempotency_key.size() > kMaxKeyBytes) {
        return json_rpc::invalid_params("idempotency_key", "at most " + std::to_string(kMaxKeyBytes) + " bytes",
                                        std::to_string(spec.idempotency_key.size()));
    }
    auto nodes = match_arguments(*function.shared, spec.params);
    if (auto* error = std::get_if<Error>(&nodes)) return std::move(*error);
    codec::JsonSource source(spec.port, spec.references,
                             Placement{function.shared->options().device, function.shared->options().dtype});
    (void)spec.port.take_lent();  // lent memory of other items of the message is not part of this call
    Binding binding = function.shared->bind(source, std::get<ArgumentNodes>(nodes));
    if (binding.failure) return source.rejection() ? *source.rejection() : to_error(*binding.failure);

    Prepared prepared{found, {}, options_.call_timeout, source.uses()};
    Execution::Setup& run = prepared.run;
    prepared.runs_here = spec.runs_here;
    run.function = function.shared;
    run.call = std::move(binding.call);
    run.run_time = function.run_time;
    run.memory = options_.memory;
    run.caller_memory = spec.memory;
    run.lent = spec.lent;
    if (auto lent = spec.port.take_lent(); !lent.empty()) {
        if (run.lent == nullptr) run.lent = std::make_shared<codec::LentForCall>();
        run.lent->add(std::move(lent));
    }
    try {
        set_keys(prepared, spec, kind, std::get<ArgumentNodes>(nodes), source);
    } catch (const InvalidValue& error) {  // an invalid reference that the codec of the function did not read
        return source.rejection() ? *source.rejection()
                                  : json_rpc::invalid_params(error.path, error.expected, error.got);
    } catch (const std::bad_alloc&) {
        return json_rpc::out_of_memory(
            "there is no memory for the arguments, which the server keeps because the call may outlive this request: "
            "wait until others have ended, or start the server with a higher --max-bytes-in-flight");
    }
    if (function.batches != nullptr) {
        auto batch = batch_arguments(*function.shared, std::get<ArgumentNodes>(nodes), source);
        if (auto* error = std::get_if<Error>(&batch)) return std::move(*error);
        if (auto& arguments = std::get<std::optional<BatchArguments>>(batch)) {
            arguments->key.append(spec.owner.principal);
            run.rows = arguments->rows;
            prepared.batch = std::move(arguments);
        }
    }
    const bool can_be_joined = !spec.idempotency_key.empty() || !prepared.cache_key.empty() || prepared.batch;
    if (spec.guard != nullptr && !can_be_joined) {
        prepared.passed_on = dynamic_cast<PassedOnCall*>(run.call.get());
        prepared.brief = prepared.passed_on == nullptr && function.run_time->brief();
        const bool may_be_left = prepared.brief && options.runs != execution::inline_ && spec.guard->can_answer();
        if (spec.runs_here || prepared.passed_on != nullptr || may_be_left) prepared.guard = spec.guard;
    }
    if (options.timeout.count() > 0) prepared.timeout = options.timeout;
    if (spec.timeout) prepared.timeout = *spec.timeout;
    return prepared;
}

/// Sets the keys by which the policies find the call, and whether its result is kept. If the call may outlive its
/// request, or its result is cached, the arguments are copied first: the key must be made of the bytes that the
/// function will read.
void Dispatcher::set_keys(Prepared& prepared, const CallSpec& spec, Kind kind, const ArgumentNodes& arguments,
                          const codec::JsonSource& source) const {
    const FunctionOptions& options = prepared.function->shared->options();
    const bool streams = prepared.function->streams;
    const bool cacheable = options_.cache && options.cached && !options.stateful && !streams;
    const bool keyed = !spec.idempotency_key.empty() && !streams;
    prepared.run.kept = keyed || kind == Kind::task;
    const bool outlives_request = prepared.run.kept || spec.is_notification;
    if (outlives_request) {
        own_arguments(prepared.run.lent.get(), spec.port);
        prepared.run.held = spec.port.hold(codec::json_bytes(spec.params));
    }
    if (!cacheable && !keyed) return;
    ArgumentsKey key = arguments_key(arguments, source, keyed ? Digests::compute : Digests::stop);
    const bool cached = cacheable && !key.has_digests && !key.has_objects && prepared.objects.empty();
    if (cached && !outlives_request && prepared.run.lent != nullptr) {
        own_arguments(prepared.run.lent.get(), spec.port);
        key = arguments_key(arguments, source, Digests::stop);
    }
    prepared.run.kept |= cached;
    prepared.arguments = std::move(key.text);
    if (cached) {
        prepared.cache_key = std::string(spec.method) + '\0' + std::string(options.version) + '\0' +
                             spec.owner.principal + '\0' + prepared.arguments;
    }
}

/// The group with the key, which lives while calls in it wait or run.
std::shared_ptr<tasks::Group> Dispatcher::group_of(const GroupKey& key, std::size_t limit) {
    return groups_.with([&](auto& groups) {
        std::weak_ptr<tasks::Group>& slot = groups[key];
        std::shared_ptr<tasks::Group> group = slot.lock();
        if (!group) slot = group = tasks::make_group(limit);
        return group;
    });
}

/// The groups of the worker pool in which the call takes places: of its function, of each object that it uses (which
/// it keeps alive, so the object's address is unique), and of its session.
tasks::Groups Dispatcher::groups_of(const Prepared& prepared, const std::string& session) {
    constexpr std::size_t kAnyNumber = 1'000'000;  // of calls at once: more than any queue holds
    const FunctionTable::Entry& function = *prepared.function;
    tasks::Groups groups;
    if (function.group) groups.emplace_back(function.group);
    bool alone = false;
    for (const auto& [object, access] : prepared.objects) {
        const bool exclusive = access == Access::exclusive;
        groups.emplace_back(group_of(object->value.get(), kAnyNumber), exclusive ? tasks::Claim::kAll : 1);
        alone |= exclusive;
    }
    // An object that is passed to be changed replaces the instance of the session.
    if (function.shared->options().stateful && !alone && !session.empty()) groups.emplace_back(group_of(session, 1));
    return groups;
}

}  // namespace shared_tensor::runtime
