#include "models/model_table.hpp"

#include <stdexcept>
#include <utility>

#include "util/log.hpp"

namespace shared_tensor::models {

namespace {

/// What stands before the methods' names; the rest of what makes these good is seen when they are shared.
bool is_name(std::string_view name) {
    constexpr std::size_t kMaxBytes = 100;
    return !name.empty() && name.size() <= kMaxBytes && name.front() != '.';
}

}  // namespace

/// Others are kept from a name while it is there.
class ModelTable::Hand {
public:
    Hand(Guarded<State>& state, std::string name) : state_(&state), name_(std::move(name)) {}
    Hand(const Hand&) = delete;
    Hand& operator=(const Hand&) = delete;
    ~Hand() {
        state_->with([&](State& state) { state.in_hand.erase(name_); });
    }

private:
    Guarded<State>* state_;
    std::string name_;
};

ModelTable::ModelTable(service::FunctionTable& functions, const std::vector<std::string>& folders,
                       std::size_t max_models, const Clock& clock)
    : functions_(&functions), folders_(folders), max_models_(max_models), clock_(&clock) {}

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
    const bool is_new = !has(parsed.name);
    if (!is_new) throw std::invalid_argument("two models are called \"" + parsed.name + '"');
    auto model = load_model(parsed.name, parsed.path, parsed.options);
    return put(parsed.name, {std::move(model), {}, std::move(parsed.options), clock_->wall_time()});
}

/// In one step with its functions: nobody else has the name in hand.
ModelTable::Info ModelTable::put(const std::string& name, Entry entry) {
    const std::shared_ptr<Model> before = find(name);
    functions_->replace(before == nullptr ? FunctionList() : before->functions(), entry.model->functions());
    for (const std::string& method : entry.model->left_out())
        log::warn("model ", name, ": not shared: ", method);
    Info info = info_of(name, entry);
    state_.with([&](State& state) { std::swap(state.models[name], entry); });
    return info;
}  // the model of before goes here, or with its last call

/// Why nobody may load it now.
std::optional<Refusal> ModelTable::fault_of(const State& state, const std::string& name, bool replace) const {
    if (state.in_hand.contains(name)) return Refusal{"name", "a model that nobody else is loading or unloading", name};
    const bool is_there = state.models.contains(name);
    if (is_there && !replace)
        return Refusal{"name", "the name of no model yet: unload that one, or say \"replace\": true", name};
    if (is_there) return std::nullopt;
    std::size_t others = 0;
    for (const auto& [other, entry] : state.models)
        others += entry.file.empty() ? 0 : 1;
    for (const std::string& other : state.in_hand)
        others += state.models.contains(other) ? 0 : 1;
    if (others >= max_models_)
        return Refusal{"name", "at most " + std::to_string(max_models_) + " models (--max-models): unload one", name};
    return std::nullopt;
}

std::optional<Refusal> ModelTable::take_in_hand(const std::string& name, bool replace) {
    return state_.with([&](State& state) {
        auto fault = fault_of(state, name, replace);
        if (!fault) state.in_hand.insert(name);
        return fault;
    });
}

std::variant<ModelTable::Info, Refusal> ModelTable::load(const Wanted& wanted) {
    const Refusal bad_name{"name", "1 to 100 of the characters a-z A-Z 0-9 _ . -, no prefix of the daemon's own",
                           wanted.name};
    if (!is_name(wanted.name)) return bad_name;
    const std::string path = folders_.find(wanted.file);
    if (path.empty()) return Refusal{"file", "a file in a folder of models of this server", wanted.file};
    if (auto fault = take_in_hand(wanted.name, wanted.replace)) return std::move(*fault);
    const Hand hand(state_, wanted.name);
    try {
        auto model = load_model(wanted.name, path, wanted.options);
        return put(wanted.name, {std::move(model), wanted.file, wanted.options, clock_->wall_time()});
    } catch (const LoadError& error) {
        return Refusal{"file", "a TorchScript file that can be shared so", wanted.file + ' ' + error.why()};
    } catch (const service::NameTaken& error) {
        return Refusal{"name", "one whose methods are no functions yet", error.name()};
    } catch (const std::invalid_argument&) {
        return bad_name;
    }
}

std::optional<Refusal> ModelTable::unload(const std::string& name) {
    if (!has(name)) return Refusal{"name", "the name of a loaded model", name};
    if (auto fault = take_in_hand(name, true)) return fault;
    const Hand hand(state_, name);
    const std::shared_ptr<Model> model = find(name);
    if (model == nullptr) return Refusal{"name", "the name of a loaded model", name};
    functions_->replace(model->functions(), {});
    state_.with([&](State& state) { state.models.erase(name); });
    return std::nullopt;
}

bool ModelTable::has(std::string_view name) const { return find(name) != nullptr; }

std::shared_ptr<Model> ModelTable::find(std::string_view name) const {
    return state_.with([&](const State& state) {
        const auto found = state.models.find(name);
        return found == state.models.end() ? nullptr : found->second.model;
    });
}

std::vector<ModelTable::Info> ModelTable::list() const {
    const auto models = state_.with([](const State& state) { return state.models; });
    std::vector<Info> all;
    for (const auto& [name, entry] : models)
        all.push_back(info_of(name, entry));
    return all;
}

ObjectPointer ModelTable::create(std::string_view name) const {
    const std::shared_ptr<Model> model = find(name);
    return model == nullptr ? nullptr : model->create();
}

void ModelTable::session_closed(std::string_view session) {
    const auto models = state_.with([](const State& state) { return state.models; });
    for (const auto& [name, entry] : models)
        entry.model->session_closed(session);
}

}  // namespace shared_tensor::models
