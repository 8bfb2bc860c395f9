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

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "protocol/json_rpc/error.hpp"
#include "runtime/functions/function_table.hpp"
#include "runtime/models/model.hpp"

namespace shared_tensor::models {

/// Folders whose TorchScript files may be loaded on request. Such a file is a program, so the operator chooses the
/// folders.
/// Thread safety: all methods from any thread.
class ModelFolders {
public:
    /// Throws std::invalid_argument for a folder that does not exist or that every user may write to.
    explicit ModelFolders(const std::vector<std::string>& folders);

    bool empty() const { return folders_.empty(); }
    struct Found {
        std::string path;       ///< empty: no such file, or rejected
        std::string rejection;  ///< why the file is rejected; empty if there is no such file
    };
    /// Finds `file`, e.g. "bottom.pt" or "v2/bottom.pt", in the first folder that has it. Files outside the folders
    /// ("..", absolute paths, links) are not found. A file is rejected if every user may write to it or to a folder on
    /// its path.
    Found find(std::string_view file) const;

private:
    std::vector<std::string> folders_;  ///< absolute, without links
};

/// The models of a server. Models can be loaded, replaced and unloaded while their functions are called: a running call
/// ends on the model that it began with.
/// Thread safety: all methods from any thread. load() and load_argument() block while they read a file;
/// wait_for_loads() blocks; no other method does.
class ModelTable {
public:
    /// Loaded on request, without those of the command line: each holds its weights in memory.
    static constexpr std::size_t kMaxLoaded = 100;

    /// `functions` outlives it, and so does what `is_open` uses.
    ModelTable(runtime::FunctionTable& functions, LoadModel load, const std::vector<std::string>& folders,
               std::size_t max_models, SessionIsOpen is_open = {}, const Clock& clock = real_clock());

    struct Info {
        std::string name, file;  ///< file: as requested; empty for models of the command line
        LoadOptions options;
        std::vector<std::string> functions, left_out;
        ModelSize size;
        std::size_t sessions;  ///< sessions that have an instance
        SystemTime loaded_at;
    };

    /// Loads "NAME=PATH?..." of the operator; the path may be anywhere. Throws a std::exception whose one-line text
    /// names both.
    Info load_argument(const std::string& argument);

    /// A request for a file in the operator's folders. A name that is in use is rejected unless `replace` is set. Then
    /// the new model is loaded first and replaces the old one in one step.
    struct Wanted {
        std::string name, file;
        LoadOptions options;
        bool replace = false;
    };
    /// The errors of load() and unload() name no path of the server.
    std::variant<Info, json_rpc::Error> load(const Wanted& wanted);
    std::optional<json_rpc::Error> unload(const std::string& name);
    /// Rejects all later loads and unloads.
    void close() { closed_.store(true); }
    /// Blocks until running loads and unloads are done; false if they still run at `deadline`.
    bool wait_for_loads(SteadyTime deadline);
    /// Unloads all models, after close() and wait_for_loads(): a compiled model has files that go with it.
    void clear();
    bool loads_on_request() const { return !folders_.empty(); }

    std::vector<Info> list() const;
    /// Makes an instance as an object of the server; null if there is no such model.
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
        std::map<std::string, Entry, std::less<>> models;  ///< an Entry without a Model: the model is being published
        std::vector<std::shared_ptr<Model>> coming;        ///< being published: may be called already
        std::set<std::string> in_hand;                     ///< names that a thread is loading or unloading
    };
    using FunctionList = std::vector<runtime::FunctionPointer>;
    class Hand;

    static Info info_of(const std::string& name, const Entry& entry);
    std::optional<json_rpc::Error> rejection_of(const State& state, const Wanted& wanted) const;
    template <class Check>
    std::optional<json_rpc::Error> take_in_hand(const std::string& name, Check check);
    Info put(const std::string& name, Entry entry);
    std::variant<Info, json_rpc::Error> load_file(const Wanted& wanted, const std::string& path);
    bool has(std::string_view name) const;
    std::shared_ptr<Model> find(std::string_view name) const;

    std::shared_ptr<Model> load_model(const std::string& name, const std::string& path,
                                      const LoadOptions& options) const;

    runtime::FunctionTable* functions_;
    const LoadModel load_model_;
    ModelFolders folders_;
    std::size_t max_models_;
    SessionIsOpen is_open_;
    const Clock* clock_;
    std::atomic<bool> closed_{false};
    mutable Guarded<State> state_;
};

}  // namespace shared_tensor::models
