#include "processes/description.hpp"

#include <utility>

#include <shared_tensor/json.hpp>

#include "runtime/functions/open_rpc.hpp"

namespace shared_tensor::processes {

namespace {

using json_rpc::Json;

/// `use(name, member)` for each option that is not a text. A count of milliseconds or microseconds is a number.
template <class Options, class Use>
void each_option(Options& options, Use use) {
    use("runs", options.runs);
    use("concurrency", options.concurrency);
    use("timeout_ms", options.timeout);
    use("cached", options.cached);
    use("cache_ttl_ms", options.cache_ttl);
    use("cache_bytes", options.cache_bytes);
    use("idempotent", options.idempotent);
    use("borrows", options.borrows);
    use("stateful", options.stateful);
    use("no_grad", options.no_grad);
    use("batch_rows", options.batch_rows);
    use("batch_wait_us", options.batch_wait);
}

template <class T>
Json json_of(const T& value) {
    if constexpr (requires { value.count(); }) {
        return value.count();
    } else if constexpr (std::is_enum_v<T>) {
        return static_cast<int>(value);
    } else {
        return value;
    }
}

template <class T>
void read_into(const Json& json, T& value) {
    if constexpr (requires { value.count(); }) {
        value = T(json.get<typename T::rep>());
    } else if constexpr (std::is_enum_v<T>) {
        value = static_cast<T>(json.get<int>());
    } else {
        json.get_to(value);
    }
}

Json describe_options(const FunctionOptions& options) {
    Json described{
        {"doc", options.doc}, {"version", options.version}, {"device", options.device}, {"dtype", options.dtype}};
    each_option(options, [&](const char* name, const auto& value) { described[name] = json_of(value); });
    return described;
}

Json describe(const FunctionRecord& function) {
    Json parameters = Json::array();
    for (std::size_t i = 0; i < function.parameters().size(); ++i) {
        const ParameterInfo& parameter = function.parameters()[i];
        Json one{{"name", parameter.name},
                 {"required", parameter.required},
                 {"flow", json_of(parameter.flow)},
                 {"schema", runtime::written_schema([&](ValueWriter to) { function.parameter_schema(i, to); })}};
        if (!parameter.required && parameter.flow == Flow::value)
            one["default"] = runtime::written_schema([&](ValueWriter to) { function.default_value(i, to); });
        parameters.push_back(std::move(one));
    }
    return {{"name", function.name()},
            {"where", function.where()},
            {"options", describe_options(function.options())},
            {"parameters", std::move(parameters)},
            {"result", runtime::written_schema([&](ValueWriter to) { function.result_schema(to); })}};
}

}  // namespace

std::string describe(const Functions& functions) {
    Json all = Json::array();
    for (const auto& function : functions)
        all.push_back(describe(*function));
    std::string text;
    json_rpc::print_json(all, text);
    return text;
}

DescribedFunction::DescribedFunction(const Json& described)
    : parameters_(described.at("parameters")),
      name_(described.at("name").get<std::string>()),
      where_(described.at("where").get<std::string>()),
      result_(described.at("result")) {
    const Json& given = described.at("options");
    options_.doc = given.at("doc").get_to(doc_);
    options_.version = given.at("version").get_to(version_);
    options_.device = given.at("device").get_to(device_);
    options_.dtype = given.at("dtype").get_to(dtype_);
    each_option(options_, [&](const char* option, auto& value) { read_into(given.at(option), value); });
    for (const Json& one : parameters_) {
        ParameterInfo info{one.at("name").get<std::string>(), one.at("required").get<bool>()};
        read_into(one.at("flow"), info.flow);
        (void)one.at("schema");
        infos_.push_back(std::move(info));
    }
}

void DescribedFunction::parameter_schema(std::size_t index, ValueWriter schema) const {
    detail::from_nlohmann(schema, parameters_.at(index).at("schema"));
}
void DescribedFunction::default_value(std::size_t index, ValueWriter value) const {
    detail::from_nlohmann(value, parameters_.at(index).value("default", Json()));
}
void DescribedFunction::result_schema(ValueWriter schema) const { detail::from_nlohmann(schema, result_); }

}  // namespace shared_tensor::processes
