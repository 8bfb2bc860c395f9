#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/function.hpp>

namespace shared_tensor::models {

/// What a session's instance of a model has for itself.
enum class State {
    copied,  ///< all tensors but the parameters, and all other attributes (default)
    deep,    ///< the parameters too: for models that change those
    shared,  ///< attributes only; tensors that are replaced are its own, tensors changed in place are everybody's
    none,    ///< nothing: the model keeps no state, calls of all sessions run at once on one instance
};

struct LoadOptions {
    State state = State::copied;
    std::size_t max_instances = 256;  ///< sessions with an instance at a time; a further one's call fails
    std::string device{};             ///< where it is, and its arguments are put: "cpu", "cuda:1"; empty: host memory
    std::string dtype{};  ///< of its floating-point parameters, and such arguments: "float16"; empty: as they are
    bool grad = false;    ///< calls record for autograd
};

/// Whether there is a session of that token: where it ended meanwhile, no instance is kept for it.
using SessionIsOpen = std::function<bool(const std::string& session)>;

/// Of all parameters and buffers, each tensor once, as they were loaded: instances may have more.
struct ModelSize {
    std::size_t parameters = 0;  ///< numbers in them
    std::uint64_t bytes = 0;
};

/// A model whose public methods are shared functions NAME.METHOD.
///
/// State: each session (Context::caller().session) has an instance of its own, made at its first call and kept until
/// session_closed(); calls of one session are to run one after another (FunctionOptions::stateful tells the
/// dispatcher; an instance waits for its previous call in any case). Without a session every call starts from the
/// state that was loaded. The parameters are shared by all instances.
/// An instance may also be an object (model.create): a call that names it as `instance` runs on that one, and needs no
/// session.
/// The functions keep the module alive, so they may outlive the Model. Thread safety: all methods from any thread.
class Model {
public:
    virtual ~Model() = default;
    virtual const std::vector<std::shared_ptr<const SharedFunction>>& functions() const = 0;
    /// An instance of its own, as a server's object; its type is "model.NAME".
    virtual ObjectPointer create() const = 0;

    /// Methods that are not shared, with the reason: "forward: a parameter of type Any can't cross".
    virtual const std::vector<std::string>& left_out() const = 0;

    virtual ModelSize size() const = 0;

    /// Frees that session's instance; a call that runs on it ends as if nothing had happened.
    virtual void session_closed(std::string_view session) = 0;
    virtual std::size_t instances() const = 0;
};

/// A file that is no model, or cannot be one here.
class [[gnu::visibility("default")]] LoadError : public std::runtime_error {
public:
    enum class Kind { file, no_memory };
    LoadError(const std::string& model, const std::string& path, const std::string& why, Kind kind = Kind::file)
        : std::runtime_error("model " + model + ": " + path + ' ' + why), why_(why), kind_(kind) {}
    const std::string& why() const { return why_; }  ///< without the path, in words that follow the file's name
    Kind kind() const { return kind_; }

private:
    std::string why_;
    Kind kind_;
};

/// An AOTInductor package, by its name: it holds native code, so it counts as a plugin.
inline bool is_compiled(std::string_view path) { return path.ends_with(".pt2"); }

/// Reads a file. Only for paths that the operator gave: such a file is a program. Throws LoadError. Without `is_open`
/// all sessions are open until they are closed.
using LoadModel = std::function<std::shared_ptr<Model>(const std::string& name, const std::string& path,
                                                       const LoadOptions& options, const SessionIsOpen& is_open)>;

/// "name=path" or "name=path?stateful=deep&device=cuda:0&dtype=float16&grad=no", as it stands on the command line;
/// stateful is yes, deep, shared or no.
struct ModelArgument {
    std::string name, path;
    LoadOptions options;
};
/// Throws std::invalid_argument.
ModelArgument parse_model_argument(const std::string& argument);

}  // namespace shared_tensor::models
