#include "runtime/functions/open_rpc.hpp"

#include <array>

#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::runtime {

namespace {

using codec::Json;

template <class Write>
Json written(Write write) {
    codec::Value value;
    codec::TensorPort port;  // a default value that is a tensor is shown as null
    codec::JsonSink sink(value, port);
    write(ValueWriter(sink, sink.root()));
    return codec::encode(value, port);
}

/// Takes a schema out of the "$literal" that the sink put around it: "$ref" is an ordinary key in a schema.
Json unwrapped(Json schema) {
    if (schema.is_object() && schema.size() == 1 && schema.contains("$literal")) schema = Json(schema["$literal"]);
    if (schema.is_structured()) {
        for (auto& member : schema)
            member = unwrapped(std::move(member));
    }
    return schema;
}

template <class Write>
Json schema_of(Write write) {
    return unwrapped(written(write));
}

/// The parameters of the function that are values, or its streams, for which OpenRPC has no field.
Json parameters_of(const FunctionRecord& function, bool streams) {
    auto list = Json::array();
    const auto parameters = function.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const ParameterInfo& parameter = parameters[i];
        if ((parameter.flow != Flow::value) != streams) continue;
        Json schema = schema_of([&](ValueWriter writer) { function.parameter_schema(i, writer); });
        Json one{{"name", parameter.name}};
        if (streams) {
            one["flow"] = parameter.flow == Flow::reader ? "in" : "out";
        } else {
            one["required"] = parameter.required;
            if (!parameter.required)
                schema["default"] = written([&](ValueWriter writer) { function.default_value(i, writer); });
        }
        one["schema"] = std::move(schema);
        list.push_back(std::move(one));
    }
    return list;
}

Json errors() {
    using json_rpc::ErrorCode;
    static constexpr std::array kCodes = {
        ErrorCode::invalid_params, ErrorCode::function_failed, ErrorCode::busy,         ErrorCode::deadline_exceeded,
        ErrorCode::cancelled,      ErrorCode::out_of_memory,   ErrorCode::shutting_down};
    auto list = Json::array();
    for (const ErrorCode code : kCodes) {
        list.push_back({{"code", static_cast<int>(code)}, {"message", json_rpc::standard_message(code)}});
    }
    return list;
}

std::string_view place(execution runs) {
    switch (runs) {
        case execution::worker: return "worker";
        case execution::task: return "task";
        case execution::inline_: return "inline";
    }
    return "worker";
}

Json method_of(const FunctionRecord& function) {
    const FunctionOptions& options = function.options();
    Json method{
        {"name", function.name()},
        {"paramStructure", "either"},
        {"params", parameters_of(function, false)},
        {"errors", errors()},
        {"result", {{"name", "result"}, {"schema", schema_of([&](ValueWriter w) { function.result_schema(w); })}}},
        {"x-execution", place(options.runs)},
        {"x-idempotent", options.idempotent || options.cached}};
    if (Json streams = parameters_of(function, true); !streams.empty()) method["x-streams"] = std::move(streams);
    if (!options.doc.empty()) method["summary"] = options.doc;
    if (options.concurrency > 0) method["x-concurrency"] = options.concurrency;
    if (options.stateful) method["x-stateful"] = true;
    if (options.batch_rows > 0)
        method["x-batched"] = {{"rows", options.batch_rows}, {"wait_us", options.batch_wait.count()}};
    if (options.timeout.count() > 0) method["x-timeout-ms"] = options.timeout.count();
    return method;
}

}  // namespace

Json written_schema(const std::function<void(ValueWriter)>& write) { return schema_of(write); }

std::shared_ptr<const OpenRpc::Document> OpenRpc::document() const {
    const std::uint64_t version = functions_->version();  // read first: if too old, the document is made again
    auto known = made_.with([&](const Made& made) { return made.version == version ? made.document : nullptr; });
    if (known != nullptr) return known;
    auto methods = Json::array();
    for (const auto& entry : functions_->all())
        methods.push_back(method_of(*entry->shared));
    methods.insert(methods.end(), methods_.begin(), methods_.end());
    auto document = std::make_shared<Document>();
    document->json = {{"openrpc", "1.3.2"},
                      {"info", {{"title", "shared_tensor"}, {"version", server_version_}}},
                      {"methods", std::move(methods)},
                      {"components", {{"schemas", schemas_}}}};
    json_rpc::print_json(document->json, document->text);
    Made made{version, document};
    made_.with([&](Made& kept) {
        if (kept.version < version) std::swap(kept, made);
    });
    return document;
}

}  // namespace shared_tensor::runtime
