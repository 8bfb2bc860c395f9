#include "server/model_methods.hpp"

#include "models/state_word.hpp"
#include "server/builtin_params.hpp"
#include "util/time_text.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using models::ModelTable;
using models::State;
using service::make_outcome;

namespace {

Outcome answer(Json json) { return make_outcome(codec::Value{std::move(json)}); }

constexpr std::chrono::milliseconds kRetryAfter{500};

State read_state(const BuiltinParams& params) {
    const auto given = params.optional_text("stateful");
    const auto state = given ? models::parse_state(*given) : State::copied;
    if (!state) throw BadParameter(json_rpc::invalid_params("stateful", "yes, deep, shared or no", *given));
    return *state;
}

Json to_json(const ModelTable::Info& info) {
    Json json{{"name", info.name},
              {"functions", info.functions},
              {"left_out", info.left_out},
              {"stateful", models::word_of(info.options.state)},
              {"device", info.options.device.empty() ? "cpu" : info.options.device},
              {"grad", info.options.grad},
              {"parameters", info.size.parameters},
              {"bytes", info.size.bytes},
              {"sessions", info.sessions},
              {"loaded_at", iso8601(info.loaded_at)}};
    if (!info.options.dtype.empty()) json["dtype"] = info.options.dtype;
    if (!info.file.empty()) json["file"] = info.file;
    return json;
}

json_rpc::Error to_error(const models::Refusal& refusal) {
    using Kind = models::Refusal::Kind;
    if (refusal.kind == Kind::busy) return json_rpc::busy(kRetryAfter);  // somebody loads or unloads it just now
    if (refusal.kind == Kind::closed) return json_rpc::shutting_down();
    if (refusal.kind == Kind::no_memory) return json_rpc::out_of_memory(refusal.got);
    return json_rpc::invalid_params(refusal.parameter, refusal.expected, refusal.got);
}

/// Empty: this one may load and unload.
std::string reason_against_change(const BuiltinCall& call, const ModelTable& models) {
    if (!call.principal.admin) return "loading and unloading models needs an admin";
    if (!models.loads_on_request())
        return "this server loads and unloads no models on request: start it with --model-folder";
    return {};
}

Outcome load(const BuiltinCall& call, ModelTable& models) {
    if (const auto reason = reason_against_change(call, models); !reason.empty())
        return make_outcome(json_rpc::not_authorised(reason));
    const BuiltinParams params(call.params, {"name", "file", "stateful", "device", "dtype", "grad", "replace"});
    ModelTable::Wanted wanted;
    wanted.name = params.text("name");
    wanted.file = params.text("file");
    wanted.options.state = read_state(params);
    wanted.options.device = params.optional_text("device").value_or("");
    wanted.options.dtype = params.optional_text("dtype").value_or("");
    wanted.options.grad = params.flag("grad");
    wanted.replace = params.flag("replace");
    auto loaded = models.load(wanted);
    if (const auto* refusal = std::get_if<models::Refusal>(&loaded)) return make_outcome(to_error(*refusal));
    return answer(to_json(std::get<ModelTable::Info>(loaded)));
}

Outcome unload(const BuiltinCall& call, ModelTable& models) {
    if (const auto reason = reason_against_change(call, models); !reason.empty())
        return make_outcome(json_rpc::not_authorised(reason));
    const BuiltinParams params(call.params, {"name"});
    const std::string name = params.text("name");
    if (const auto refusal = models.unload(name)) return make_outcome(to_error(*refusal));
    return answer({{"unloaded", name}});
}

Outcome list(const BuiltinCall& call, const ModelTable& models) {
    const BuiltinParams none(call.params, {});
    Json all = Json::array();
    for (const auto& info : models.list())
        all.push_back(to_json(info));
    return answer({{"models", std::move(all)}});
}

Outcome create(const BuiltinCall& call, const ModelTable& models) {
    const BuiltinParams params(call.params, {"model"});
    const std::string name = params.text("model");
    ObjectPointer instance = models.create(name);
    if (instance == nullptr) throw BadParameter(json_rpc::invalid_params("model", "the name of a loaded model", name));
    return make_outcome(codec::Value{{{"$object", 0}}, {}, {std::move(instance)}});
}

}  // namespace

void add_model_methods(Builtins& builtins, models::ModelTable& models) {
    builtins.add("model.list", [&models](const BuiltinCall& call) { return list(call, models); });
    builtins.add("model.create", [&models](const BuiltinCall& call) { return create(call, models); });
    builtins.add("model.load", [&models](const BuiltinCall& call) { return load(call, models); });
    builtins.add("model.unload", [&models](const BuiltinCall& call) { return unload(call, models); });
}

}  // namespace shared_tensor::server
