#include "runtime/models/model_table.hpp"

#include <stdexcept>
#include <utility>

#include "base/log/log.hpp"
#include "base/system/files.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::models {

using json_rpc::Error;
using json_rpc::invalid_params;

namespace {

/// Checks the prefix of the methods' names. The other rules are checked when the methods are shared.
bool is_name(std::string_view name) {
    constexpr std::size_t kMaxBytes = 100;
    return !name.empty() && name.size() <= kMaxBytes && name.front() != '.';
}

constexpr std::chrono::milliseconds kRetryAfter{500};  // while another request loads or unloads the model

Error bad_name(const std::string& name) {
    return invalid_params("name", "1 to 100 of the characters a-z A-Z 0-9 _ . -, no prefix of the daemon's own", name);
}

}  // namespace

/// Reserves a name while it lives: no other thread can load or unload a model of that name.
class ModelTable::Hand {
public:
    Hand(Guarded<State>& state, std::string name) : state_(&state), name_(std::move(name)) {}
    Hand(const Hand&) = delete;
    Hand& operator=(const Hand&) = delete;
    ~Hand() {
        state_->with([&](State& state) { state.in_hand.erase(name_); });
        state_->notify_all();
    }

private:
    Guarded<State>* state_;
    std::string name_;
};

ModelTable::ModelTable(runtime::FunctionTable& functions, LoadModel load, const std::vector<std::string>& folders,
                       std::size_t max_models, SessionIsOpen is_open, const Clock& clock)
    : functions_(&functions),
      load_model_(std::move(load)),
      folders_(folders),
      max_models_(max_models),
      is_open_(std::move(is_open)),
      clock_(&clock) {}

ModelTable::Info ModelTable::info_of(const std::string& name, const Entry& entry) {
    Info info{name,
              entry.file,
              entry.options,
              {},
              entry.model->left_out(),
              entry.model->size(),
              entry.model->instances(),
              entry.loaded_at};
    for (const auto& function : entry.model->functions())
        info.functions.emplace_back(function->name());
    return info;
}

ModelTable::Info ModelTable::load_argument(const std::string& argument) {
    ModelArgument parsed = parse_model_argument(argument);
    if (has(parsed.name)) throw std::invalid_argument("two models are called \"" + parsed.name + '"');
    if (const std::string rejection = rejection_of_writers(parsed.path); !rejection.empty())
        throw LoadError(parsed.name, parsed.path, rejection);
    if (is_compiled(parsed.path) && belongs_to_another(parsed.path))
        throw LoadError(parsed.name, parsed.path, "belongs to another user: its code would run as you");
    auto model = load_model(parsed.name, parsed.path, parsed.options);
    if (is_compiled(parsed.path)) parsed.options.state = models::State::none;
    return put(parsed.name, {std::move(model), {}, std::move(parsed.options), clock_->wall_time()});
}

std::shared_ptr<Model> ModelTable::load_model(const std::string& name, const std::string& path,
                                              const LoadOptions& options) const {
    if (const auto rejection = tensor::rejection_of_placement(options.device, options.dtype); !rejection.empty())
        throw LoadError(name, path, "cannot be loaded: " + rejection);
    return load_model_(name, path, options, is_open_);
}

/// Publishes the model and its functions in one step. The caller has reserved the name. Sessions that end meanwhile are
/// reported to the model.
ModelTable::Info ModelTable::put(const std::string& name, Entry entry) {
    Info info = info_of(name, entry);
    const std::shared_ptr<Model> before = find(name), model = entry.model;
    state_.with([&](State& state) {
        state.coming.reserve(state.coming.size() + 1);
        state.models.try_emplace(name);  // so that nothing can fail after its functions are published
        state.coming.push_back(model);
    });
    const auto end_coming = [&](State& state) { std::erase(state.coming, model); };
    try {
        functions_->replace(before == nullptr ? FunctionList() : before->functions(), model->functions());
    } catch (...) {
        state_.with([&](State& state) {
            end_coming(state);
            if (before == nullptr) state.models.erase(name);
        });
        throw;
    }
    state_.with([&](State& state) {
        std::swap(state.models.find(name)->second, entry);
        end_coming(state);
    });
    for (const std::string& method : info.left_out)
        log::warn("model ", name, ": not shared: ", method);
    return info;
}  // frees the previous model, unless calls still use it

/// Why the model cannot be loaded now; nullopt if it can.
std::optional<Error> ModelTable::rejection_of(const State& state, const Wanted& wanted) const {
    const auto known = state.models.find(wanted.name);
    if (known != state.models.end() && !wanted.replace) {
        return invalid_params("name", "the name of no model yet: unload that one, or say \"replace\": true",
                              wanted.name);
    }
    std::size_t others = 0;
    for (const auto& [name, entry] : state.models)
        others += name != wanted.name && !entry.file.empty() ? 1 : 0;
    for (const std::string& name : state.in_hand) {  // these names may become such models
        const auto found = state.models.find(name);
        others += found == state.models.end() || found->second.file.empty() ? 1 : 0;
    }
    if (others < max_models_) return std::nullopt;
    return invalid_params("name",
                          "at most " + std::to_string(max_models_) + " models that are loaded on request: unload one",
                          wanted.name);
}

template <class Check>
std::optional<Error> ModelTable::take_in_hand(const std::string& name, Check check) {
    return state_.with([&](State& state) -> std::optional<Error> {
        if (state.in_hand.contains(name)) return json_rpc::busy(kRetryAfter);
        if (auto rejection = check(state)) return rejection;
        state.in_hand.insert(name);
        return std::nullopt;
    });
}

std::variant<ModelTable::Info, Error> ModelTable::load(const Wanted& wanted) {
    if (closed_.load()) return json_rpc::shutting_down();
    if (!is_name(wanted.name)) return bad_name(wanted.name);
    if (is_compiled(wanted.file)) {
        return invalid_params(
            "file", "a TorchScript file: a .pt2 holds native code, and is loaded by --model when the server starts",
            wanted.file);
    }
    if (wanted.options.batch_rows > 0 && wanted.options.state != models::State::none) {
        return invalid_params("batch", "no batch for a model with state: load it with \"stateful\": \"no\"",
                              std::to_string(wanted.options.batch_rows));
    }
    const ModelFolders::Found found = folders_.find(wanted.file);
    if (found.path.empty()) {
        return invalid_params("file", "a file in a folder of models of this server",
                              found.rejection.empty() ? wanted.file : wanted.file + ' ' + found.rejection);
    }
    auto rejection = take_in_hand(wanted.name, [&](const State& state) { return rejection_of(state, wanted); });
    if (rejection) return std::move(*rejection);
    const Hand hand(state_, wanted.name);
    return load_file(wanted, found.path);
}

/// The caller has reserved the name.
std::variant<ModelTable::Info, Error> ModelTable::load_file(const Wanted& wanted, const std::string& path) {
    try {
        auto model = load_model(wanted.name, path, wanted.options);
        if (closed_.load()) return json_rpc::shutting_down();
        return put(wanted.name, {std::move(model), wanted.file, wanted.options, clock_->wall_time()});
    } catch (const LoadError& error) {
        const std::string why = wanted.file + ' ' + error.why();
        if (error.kind() == LoadError::Kind::no_memory) return json_rpc::out_of_memory(why);
        return invalid_params("file", "a TorchScript file that can be shared so", why);
    } catch (const runtime::NameTaken& error) {
        return invalid_params("name", "one whose methods are no functions yet", error.name());
    } catch (const std::invalid_argument& error) {
        return invalid_params("name", "a name and options with which the model's methods can be shared", error.what());
    }
}

std::optional<Error> ModelTable::unload(const std::string& name) {
    if (closed_.load()) return json_rpc::shutting_down();
    auto rejection = take_in_hand(name, [&](const State& state) -> std::optional<Error> {
        if (state.models.contains(name)) return std::nullopt;
        return invalid_params("name", "the name of a loaded model", name);
    });
    if (rejection) return rejection;
    const Hand hand(state_, name);
    const std::shared_ptr<Model> model = find(name);
    functions_->replace(model->functions(), {});
    state_.with([&](State& state) { state.models.erase(name); });
    return std::nullopt;
}

bool ModelTable::wait_for_loads(SteadyTime deadline) {
    return state_.lock().wait_until(deadline, [](const State& state) { return state.in_hand.empty(); });
}

void ModelTable::clear() {
    const auto models = state_.with([](State& state) { return std::exchange(state.models, {}); });
    for (const auto& [name, entry] : models)
        functions_->replace(entry.model->functions(), {});
}

bool ModelTable::has(std::string_view name) const { return find(name) != nullptr; }

std::shared_ptr<Model> ModelTable::find(std::string_view name) const {
    return state_.with([&](const State& state) {
        const auto found = state.models.find(name);
        return found == state.models.end() ? nullptr : found->second.model;
    });
}

std::vector<ModelTable::Info> ModelTable::list() const {
    const auto models = state_.get(&State::models);
    std::vector<Info> all;
    for (const auto& [name, entry] : models) {
        if (entry.model != nullptr) all.push_back(info_of(name, entry));
    }
    return all;
}

ObjectPointer ModelTable::create(std::string_view name) const {
    const std::shared_ptr<Model> model = find(name);
    return model == nullptr ? nullptr : model->create();
}

void ModelTable::session_closed(std::string_view session) {
    const auto models = state_.with([](const State& state) {
        auto all = state.coming;
        for (const auto& [name, entry] : state.models)
            all.push_back(entry.model);
        return all;
    });
    for (const auto& model : models) {
        if (model != nullptr) model->session_closed(session);
    }
}

}  // namespace shared_tensor::models
