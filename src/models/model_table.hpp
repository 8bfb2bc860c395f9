#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/model.hpp"
#include "models/model_folders.hpp"
#include "service/function_table.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::models {

/// Why a model was not loaded or unloaded, in words for whoever asked for it. Names no path.
struct Refusal {
    enum class Kind { request, busy, no_memory, closed };
    Kind kind = Kind::request;
    std::string parameter{}, expected{}, got{};  ///< of a fault of the request; `got` of no_memory too
};

/// The models of a server. They come and go while their functions are called: a call that runs ends on the model that
/// it began with.
/// Thread safety: all methods from any thread. load() and load_argument() block while a file is read; nothing else.
class ModelTable {
public:
    /// Loaded on request, without those of the command line: each holds its weights in memory.
    static constexpr std::size_t kMaxLoaded = 100;

    /// `functions` outlives it, and so does what `is_open` uses.
    ModelTable(service::FunctionTable& functions, LoadModel load, const std::vector<std::string>& folders,
               std::size_t max_models, SessionIsOpen is_open = {}, const Clock& clock = real_clock());

    struct Info {
        std::string name, file;  ///< file: as it was asked for; empty for one of the command line
        LoadOptions options;
        std::vector<std::string> functions, left_out;
        ModelSize size;
        std::size_t sessions;  ///< that have an instance
        SystemTime loaded_at;
    };

    /// "NAME=PATH?..." of the operator, from anywhere. Throws std::exception in one line that names both.
    Info load_argument(const std::string& argument);

    /// What a request asks for: a file of the operator's folders. Without `replace` a name that is taken is refused;
    /// with it the new model is loaded first, and takes the place of the other in one step.
    struct Wanted {
        std::string name, file;
        LoadOptions options;
        bool replace = false;
    };
    std::variant<Info, Refusal> load(const Wanted& wanted);
    std::optional<Refusal> unload(const std::string& name);
    /// From now on nothing is loaded or unloaded.
    void close() { closed_.store(true); }
    /// Waits for loads that have begun; false if they went on at `deadline`.
    bool wait_for_loads(SteadyTime deadline);
    bool loads_on_request() const { return !folders_.empty(); }

    std::vector<Info> list() const;
    /// An instance of its own, as a server's object; null where there is no such model.
    ObjectPointer create(std::string_view name) const;
    void session_closed(std::string_view session);

private:
    struct Entry {
        std::shared_ptr<Model> model;
        std::string file;
        LoadOptions options;
        SystemTime loaded_at;
    };
    struct State {
        std::map<std::string, Entry, std::less<>> models;  ///< without a Model: of one that is coming
        std::vector<std::shared_ptr<Model>> coming;        ///< may be called already, or soon
        std::set<std::string> in_hand;                     ///< names that somebody is loading or unloading
    };
    using FunctionList = std::vector<service::FunctionPointer>;
    class Hand;

    static Info info_of(const std::string& name, const Entry& entry);
    std::optional<Refusal> fault_of(const State& state, const Wanted& wanted) const;
    template <class Fault>
    std::optional<Refusal> take_in_hand(const std::string& name, Fault fault);
    Info put(const std::string& name, Entry entry);
    std::variant<Info, Refusal> load_file(const Wanted& wanted, const std::string& path);
    bool has(std::string_view name) const;
    std::shared_ptr<Model> find(std::string_view name) const;

    std::shared_ptr<Model> load_model(const std::string& name, const std::string& path,
                                      const LoadOptions& options) const;

    service::FunctionTable* functions_;
    const LoadModel load_model_;
    ModelFolders folders_;
    std::size_t max_models_;
    SessionIsOpen is_open_;
    const Clock* clock_;
    std::atomic<bool> closed_{false};
    mutable Guarded<State> state_;
};

}  // namespace shared_tensor::models
