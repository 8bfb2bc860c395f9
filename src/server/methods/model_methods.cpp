#include <array>

#include "base/concurrency/clock.hpp"
#include "runtime/models/model.hpp"
#include "server/methods/methods.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using models::ModelTable;

namespace {

using schema::object;
using Text = std::optional<std::string>;

constexpr std::array<std::string_view, 4> kStates = {"yes", "deep", "shared", "no"};
using State = Word<kStates>;

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
    if (info.options.batch_rows > 0) {
        json["batch"] = info.options.batch_rows;
        json["batch_wait_ms"] = std::chrono::duration<double, std::milli>(info.options.batch_wait).count();
    }
    return json;
}

Json model_schema() {
    return object({{"name", "string"},
                   {"functions", schema::list_of("string")},
                   {"left_out", schema::list_of("string")},
                   {"stateful", "string"},
                   {"device", "string"},
                   {"grad", "boolean"},
                   {"parameters", "integer"},
                   {"bytes", "integer"},
                   {"sessions", "integer"},
                   {"loaded_at", "string"},
                   {"dtype?", "string"},
                   {"file?", "string"},
                   {"batch?", "integer"},
                   {"batch_wait_ms?", "number"}});
}

void check_may_change(const BuiltinCall& call, const ModelTable& models) {
    if (!call.principal.admin) throw Rejected(json_rpc::not_authorised("loading and unloading models needs an admin"));
    if (!models.loads_on_request())
        throw Rejected(json_rpc::not_authorised(
            "this server loads and unloads no models on request: start it with --model-folder"));
}

}  // namespace

void add_model_methods(Builtins& builtins, Services& all) {
    ModelTable& models = all.models;
    builtins.add(
        {"model.list", "TorchScript models that are loaded.", object({{"models", schema::list_of(model_schema())}})},
        {}, [&models](const BuiltinCall&) {
            Json list = Json::array();
            for (const auto& info : models.list())
                list.push_back(to_json(info));
            return Json{{"models", std::move(list)}};
        });
    builtins.add(
        {"model.create", "A handle of a new instance that has its own state.",
         object({{"$object", object({{"id", "string"}, {"type?", "string"}})}})},
        {"model"}, [&models](const BuiltinCall&, const std::string& model) {
            ObjectPointer instance = models.create(model);
            if (instance == nullptr)
                throw Rejected(json_rpc::invalid_params("model", "the name of a loaded TorchScript model", model));
            return runtime::make_outcome(codec::Value{{{"$object", 0}}, {}, {std::move(instance)}});
        });
    builtins.add(
        {"model.load", "Loads a file of a model folder. Needs an admin.", model_schema(), Builtins::Takes::long_work},
        {"name", "file", "stateful", "device", "dtype", "grad", "replace", "batch", "batch_wait_ms"},
        [&models](const BuiltinCall& call, std::string name, std::string file, const std::optional<State>& stateful,
                  const Text& device, const Text& dtype, std::optional<bool> grad, std::optional<bool> replace,
                  std::optional<std::size_t> batch, std::optional<std::int64_t> batch_wait_ms) {
            check_may_change(call, models);
            ModelTable::Wanted wanted;
            wanted.name = std::move(name);
            wanted.file = std::move(file);
            wanted.options.state = stateful ? *models::parse_state(stateful->text) : models::State::copied;
            wanted.options.device = device.value_or("");
            wanted.options.dtype = dtype.value_or("");
            wanted.options.grad = grad.value_or(false);
            wanted.options.batch_rows = batch.value_or(0);
            wanted.options.batch_wait = std::chrono::milliseconds(batch_wait_ms.value_or(0));
            wanted.replace = replace.value_or(false);
            auto loaded = models.load(wanted);
            if (const auto* error = std::get_if<json_rpc::Error>(&loaded)) throw Rejected(*error);
            return to_json(std::get<ModelTable::Info>(loaded));
        });
    builtins.add({"model.unload", "Unloads a model. Needs an admin.", object({{"unloaded", "string"}}),
                  Builtins::Takes::long_work},
                 {"name"}, [&models](const BuiltinCall& call, const std::string& name) {
                     check_may_change(call, models);
                     if (const auto error = models.unload(name)) throw Rejected(*error);
                     return Json{{"unloaded", name}};
                 });
}

}  // namespace shared_tensor::server
