#include "runtime/functions/arguments.hpp"

#include <algorithm>
#include <atomic>
#include <new>

#include "base/memory/memory_reserve.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "runtime/calls/dispatcher.hpp"

namespace shared_tensor::runtime {

namespace {

using codec::Json;
using json_rpc::Error;

std::string listed(const FunctionRecord& function) {
    std::string text;
    for (const ParameterInfo& parameter : function.parameters()) {
        if (parameter.flow == Flow::value) text.append(text.empty() ? "" : ", ").append(parameter.name);
    }
    return text.empty() ? "no parameters" : "the parameters " + text;
}

/// The indices of the parameters that are given with the call: all except streams.
std::vector<std::size_t> value_places(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].flow == Flow::value) places.push_back(i);
    }
    return places;
}

std::size_t required_count(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    return static_cast<std::size_t>(
        std::count_if(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.required; }));
}

std::string wanted_count(const FunctionRecord& function) {
    const std::size_t least = required_count(function);
    const std::size_t most = value_places(function).size();
    std::string text = least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
    return text + (most == 1 ? " argument" : " arguments");
}

std::variant<ArgumentNodes, json_rpc::Error> by_position(const FunctionRecord& function, const Json& params) {
    const std::vector<std::size_t> places = value_places(function);
    if (params.size() > places.size()) {
        return json_rpc::invalid_params(std::to_string(places.size()), wanted_count(function),
                                        std::to_string(params.size()));
    }
    ArgumentNodes nodes(function.parameters().size(), nullptr);
    for (std::size_t i = 0; i < params.size(); ++i)
        nodes[places[i]] = codec::JsonSource::node(params[i]);
    return nodes;
}

std::variant<ArgumentNodes, json_rpc::Error> by_name(const FunctionRecord& function, const Json& params) {
    const auto parameters = function.parameters();
    ArgumentNodes nodes(parameters.size(), nullptr);
    std::size_t found = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto member = params.find(parameters[i].name);
        if (member == params.end()) continue;
        if (parameters[i].flow != Flow::value)
            return json_rpc::invalid_params(parameters[i].name,
                                            "no argument: a stream's items come while the call runs", "an argument");
        nodes[i] = codec::JsonSource::node(*member);
        ++found;
    }
    if (found == params.size()) return nodes;
    for (const auto& item : params.items()) {
        const std::string& name = item.key();
        const bool known =
            std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
        if (!known) return json_rpc::invalid_params(name, listed(function), "an unknown parameter");
    }
    return nodes;
}

/// An object inside a referenced value has no id. It gets a number, so that it equals no other object.
void append_object(const Json& json, bool has_id, ArgumentsKey& key) {
    static std::atomic<std::uint64_t> serial{0};
    key.has_objects = true;
    if (has_id) return json_rpc::print_json(json, key.text);
    key.text.append("object ").append(std::to_string(++serial));
}

void append_key(const Json& given, const codec::JsonSource& source, Digests digests, ArgumentsKey& key) {
    const Json& json = source.at(codec::JsonSource::node(given));
    const ValueSource::Node node = codec::JsonSource::node(json);
    if (source.kind(node) == Kind::handle) return append_object(json, !source.is_inner_object(node), key);
    if (const codec::TensorPointer tensor = source.imported(node)) {
        if (tensor->append_key(key.text)) return;
        key.has_digests = true;
        if (digests == Digests::compute) tensor->append_digest(key.text);
        return;
    }
    if (json.is_array() || json.is_object()) {
        key.text.push_back(json.is_array() ? '[' : '{');
        for (const auto& [name, member] : json.items()) {
            if (key.has_digests && digests == Digests::stop) return;
            if (json.is_object()) json_rpc::print_json(name, key.text);
            append_key(member, source, digests, key);
            key.text.push_back(',');
        }
        key.text.push_back(json.is_array() ? ']' : '}');
        return;
    }
    json_rpc::print_json(json, key.text);
}

}  // namespace

std::variant<ArgumentNodes, json_rpc::Error> match_arguments(const FunctionRecord& function, const Json& params) {
    auto matched = params.is_object() ? by_name(function, params) : by_position(function, params);
    const auto* nodes = std::get_if<ArgumentNodes>(&matched);
    if (nodes == nullptr) return matched;
    const auto parameters = function.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if ((*nodes)[i] == nullptr && parameters[i].required) {
            return json_rpc::invalid_params(parameters[i].name, "a value: the parameter is required", "nothing");
        }
    }
    return matched;
}

ArgumentsKey arguments_key(const ArgumentNodes& nodes, const codec::JsonSource& source, Digests digests) {
    ArgumentsKey key;
    for (const ValueSource::Node node : nodes) {
        if (node != nullptr) append_key(*static_cast<const Json*>(node), source, digests, key);
        key.text.push_back(';');
    }
    return key;
}

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

constexpr std::size_t kMaxKeyBytes = 255;  // clients rely on it: docs/protocol.md

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

    Prepared prepared{found,    std::move(binding.call), {}, {}, options_.call_timeout, source.uses(), spec.memory,
                      spec.lent};
    if (auto lent = spec.port.take_lent(); !lent.empty()) {
        if (prepared.lent == nullptr) prepared.lent = std::make_shared<codec::LentForCall>();
        prepared.lent->add(std::move(lent));
    }
    try {
        set_keys(prepared, spec, kind, std::get<ArgumentNodes>(nodes), source);
    } catch (const InvalidValue& error) {  // an invalid reference that the codec of the function did not read
        return source.rejection() ? *source.rejection()
                                  : json_rpc::invalid_params(error.path, error.expected, error.got);
    } catch (const std::bad_alloc&) {
        return json_rpc::out_of_memory(
            "there is no memory for copies of the arguments, which the call needs because it may outlive this request: "
            "wait until others have ended, or start the server with a higher --max-bytes-in-flight");
    }
    if (options.timeout.count() > 0) prepared.timeout = options.timeout;
    if (spec.timeout) prepared.timeout = *spec.timeout;
    return prepared;
}

namespace {

/// For a call that may outlive its request: its caller may write to its memory as soon as the request is answered.
void own_arguments(const codec::LentForCall* lent, codec::TensorPort& port) {
    if (lent == nullptr) return;
    for (const auto& memory : lent->in_use())
        port.take_over(*memory);
}

}  // namespace

/// Sets the keys by which the policies find the call, and whether its result is kept. If the call may outlive its
/// request, or its result is cached, the arguments are copied first: the key must be made of the bytes that the
/// function will read.
void Dispatcher::set_keys(Prepared& prepared, const CallSpec& spec, Kind kind, const ArgumentNodes& arguments,
                          const codec::JsonSource& source) const {
    const FunctionOptions& options = prepared.function->shared->options();
    const bool streams = prepared.function->streams;
    const bool cacheable = options_.cache && options.cached && !options.stateful && !streams;
    const bool keyed = !spec.idempotency_key.empty() && !streams;
    prepared.kept = keyed || kind == Kind::task;
    const bool outlives_request = prepared.kept || spec.is_notification;
    if (outlives_request) own_arguments(prepared.lent.get(), spec.port);
    if (!cacheable && !keyed) return;
    ArgumentsKey key = arguments_key(arguments, source, keyed ? Digests::compute : Digests::stop);
    const bool cached = cacheable && !key.has_digests && !key.has_objects && prepared.objects.empty();
    if (cached && !outlives_request && prepared.lent != nullptr) {
        own_arguments(prepared.lent.get(), spec.port);
        key = arguments_key(arguments, source, Digests::stop);
    }
    prepared.kept |= cached;
    prepared.arguments = std::move(key.text);
    if (cached) {
        prepared.cache_key = std::string(spec.method) + '\0' + std::string(options.version) + '\0' +
                             spec.owner.principal + '\0' + prepared.arguments;
    }
}

}  // namespace shared_tensor::runtime
