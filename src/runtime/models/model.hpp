#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/function.hpp>

namespace shared_tensor::models {

/// The part of a model's state that each session's instance has for itself.
enum class State {
    copied,  ///< all tensors except parameters, and all other attributes (default)
    deep,    ///< the parameters too: for models that change them
    shared,  ///< attributes only: a replaced tensor is the session's own, a tensor changed in place is shared
    none,    ///< nothing: the model has no state; calls of all sessions run at once on one instance
};

/// Parses "yes", "deep", "shared" or "no", the values of the option `stateful`; nullopt for other words.
std::optional<State> parse_state(std::string_view word);
std::string_view word_of(State state);

struct LoadOptions {
    State state = State::copied;
    std::size_t max_instances = 256;  ///< sessions with an instance at a time; calls of further ones fail
    std::string device{};             ///< device of the model and its arguments: "cpu", "cuda:1"; empty: host memory
    std::string dtype{};              ///< type of floating-point parameters and arguments: "float16"; empty: unchanged
    bool grad = false;                ///< calls record for autograd
    std::size_t batch_rows = 0;       ///< as FunctionOptions::batch_rows; only for a model without state
    std::chrono::microseconds batch_wait{0};
};

/// Whether a session with that token is open. No instance is kept for a session that has ended.
using SessionIsOpen = std::function<bool(const std::string& session)>;

/// Size of all parameters and buffers, each tensor counted once, as loaded. Instances may use more memory.
struct ModelSize {
    std::size_t parameters = 0;  ///< number of elements
    std::uint64_t bytes = 0;
};

/// A model whose public methods are shared functions NAME.METHOD.
///
/// State: each session (Context::caller().session) has its own instance, made at its first call and kept until
/// session_closed(). Calls of one session must run one after another: FunctionOptions::stateful tells the dispatcher,
/// and an instance also waits for its previous call. A call without a session starts from the loaded state. All
/// instances share the parameters, unless the state is deep.
/// An instance may also be an object (model.create): a call that passes it as `instance` runs on it and needs no
/// session.
/// The functions keep the model alive, so they may outlive the Model. Thread safety: all methods from any thread.
class Model {
public:
    virtual ~Model() = default;
    virtual const std::vector<std::shared_ptr<const FunctionRecord>>& functions() const = 0;
    /// Makes an instance as an object of the server; its type is "model.NAME".
    virtual ObjectPointer create() const = 0;

    /// Methods that are not shared, with reasons: "forward: a parameter of type Any can't cross".
    virtual const std::vector<std::string>& left_out() const = 0;

    virtual ModelSize size() const = 0;

    /// Frees the session's instance. A call that runs on it ends normally.
    virtual void session_closed(std::string_view session) = 0;
    virtual std::size_t instances() const = 0;
};

/// The file is not a model, or the model cannot be loaded here.
class [[gnu::visibility("default")]] LoadError : public std::runtime_error {
public:
    enum class Kind { file, no_memory };
    LoadError(const std::string& model, const std::string& path, const std::string& why, Kind kind = Kind::file)
        : std::runtime_error("model " + model + ": " + path + ' ' + why), why_(why), kind_(kind) {}
    const std::string& why() const { return why_; }  ///< the reason, without the path, to follow the file's name
    Kind kind() const { return kind_; }

private:
    std::string why_;
    Kind kind_;
};

/// Whether the path names an AOTInductor package. It holds native code, so it counts as a plugin.
inline bool is_compiled(std::string_view path) { return path.ends_with(".pt2"); }

/// Loads a model file. Only for paths given by the operator: such a file is a program. Throws LoadError. Without
/// `is_open`, sessions count as open until they are closed.
using LoadModel = std::function<std::shared_ptr<Model>(const std::string& name, const std::string& path,
                                                       const LoadOptions& options, const SessionIsOpen& is_open)>;

/// "name=path" or "name=path?stateful=deep&device=cuda:0&dtype=float16&grad=no", as on the command line. stateful is
/// yes, deep, shared or no. A model without state may have batch=ROWS and batch_wait_ms=MILLISECONDS.
struct ModelArgument {
    std::string name, path;
    LoadOptions options;
};
/// Throws std::invalid_argument.
ModelArgument parse_model_argument(const std::string& argument);

}  // namespace shared_tensor::models
