#include "processes/description.hpp"

#include <stdexcept>
#include <utility>

#include <shared_tensor/json.hpp>

#include "protocol/json_rpc/json_text.hpp"
#include "runtime/functions/open_rpc.hpp"

namespace shared_tensor::processes {

namespace {

using json_rpc::Json;

/// FunctionOptions with texts of its own.
struct Options {
    FunctionOptions plain;
    std::string doc, version, device, dtype;

    FunctionOptions view() const {
        FunctionOptions options = plain;
        options.doc = doc;
        options.version = version;
        options.device = device;
        options.dtype = dtype;
        return options;
    }
};

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

class DescribedFunction final : public FunctionRecord {
public:
    explicit DescribedFunction(const Json& json)
        : name_(json.at("name").get<std::string>()),
          where_(json.at("where").get<std::string>()),
          parameters_(json.at("parameters")),
          result_(json.at("result")) {
        const Json& given = json.at("options");
        for (auto [text, member] : {std::pair{"doc", &texts_.doc},
                                    {"version", &texts_.version},
                                    {"device", &texts_.device},
                                    {"dtype", &texts_.dtype}})
            given.at(text).get_to(*member);
        each_option(texts_.plain, [&](const char* option, auto& value) { read_into(given.at(option), value); });
        options_ = texts_.view();
        for (const Json& one : parameters_) {
            ParameterInfo info{one.at("name").get<std::string>(), one.at("required").get<bool>()};
            read_into(one.at("flow"), info.flow);
            (void)one.at("schema");
            infos_.push_back(std::move(info));
        }
    }

    std::string_view name() const override { return name_; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return where_; }
    std::span<const ParameterInfo> parameters() const override { return infos_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        detail::from_nlohmann(schema, parameters_.at(index).at("schema"));
    }
    void default_value(std::size_t index, ValueWriter value) const override {
        detail::from_nlohmann(value, parameters_.at(index).value("default", Json()));
    }
    void result_schema(ValueWriter schema) const override { detail::from_nlohmann(schema, result_); }
    Binding bind(const ValueSource&, std::span<const ValueSource::Node>) const noexcept override {
        return {nullptr, CallFailure{}};
    }

private:
    const std::string name_, where_;
    const Json parameters_, result_;
    std::vector<ParameterInfo> infos_;
    Options texts_;
    FunctionOptions options_;
};

}  // namespace

std::string describe(const Functions& functions) {
    Json all = Json::array();
    for (const auto& function : functions)
        all.push_back(describe(*function));
    std::string text;
    json_rpc::print_json(all, text);
    return text;
}

Functions read_description(std::string_view text) {
    try {
        Functions functions;
        for (const Json& one : Json::parse(text))
            functions.push_back(std::make_shared<DescribedFunction>(one));
        return functions;
    } catch (const Json::exception& error) {
        throw std::runtime_error(std::string("a worker process described its functions wrongly: ") + error.what());
    }
}

}  // namespace shared_tensor::processes
