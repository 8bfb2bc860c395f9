#pragma once

// Tensors that a server keeps by name, for all processes of one user: published once, read by many.
//
//     NamedTensors names(client);
//     names.put("step", tensor);                                   // one tensor
//     names.put("weights", model_state);                           // a set: std::map<std::string, at::Tensor>
//     names.put_file("weights", "weights.safetensors");            // a set, straight from a file
//     NamedTensor weights = names.get("weights");                  // in another process: no copy on the same host
//     use(weights["layer.0.weight"], weights.version());
//     if (auto next = names.watch("weights", weights.version(), 60s)) weights = names.get("weights");
//
// A set is published in one step, under one version. Who reads a version keeps it as long as any of its tensors lives,
// whatever is published after it; its memory is given back with the last one. A set lies in one allocation: however
// many tensors it has, it costs one hand-over. What a reader writes to its tensors is seen by nobody else.

#include <chrono>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/client.hpp>

namespace shared_tensor {

/// What was published.
struct Published {
    std::string name;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;  ///< that the server holds for it
};

struct PutOptions {
    /// Only in the place of that version, 0: only where there is none; else InvalidParams.
    std::optional<std::uint64_t> if_version{};
    /// Short texts for readers, 64 KiB together.
    std::map<std::string, std::string> metadata{};
};

/// How a named tensor is fetched over the network: in ranges, or with ClientOptions::compression by one request for the
/// whole file, compressed; ranges then serve where that connection breaks.
struct PullOptions {
    /// Another version is UnknownOrExpired; none: that of now.
    std::optional<std::uint64_t> version{};
    /// Rows of a tensor, from the first up to the last, which is not included; none: from its start, to its end.
    std::optional<std::int64_t> first_row{}, last_row{};
    std::size_t connections = 4;                     ///< at once; those beyond ClientOptions::connections wait
    std::size_t range_bytes = std::size_t{4} << 20;  ///< of one request
    bool verify = true;                              ///< each range is held against a digest that the server gives
};

/// How a named tensor is sent over the network.
struct PushOptions {
    PutOptions put{};
    std::size_t connections = 4;                    ///< at once; those beyond ClientOptions::connections wait
    std::size_t part_bytes = std::size_t{1} << 20;  ///< of one request
    bool verify = true;                             ///< each part goes with a digest that the server checks
    /// What came stays in the server when the push fails, as long as it keeps uploads (--upload-ttl): a push of the
    /// same to the same name, by this process or another one, sends what is missing. Costs a look at all bytes before;
    /// each part goes with its digest, whatever `verify` says. Not with PutOptions::if_version: nobody could tell whose
    /// push it was.
    bool resume = false;
};

struct NamedTensorInfo {
    std::string name, owner;
    std::uint64_t version = 0, bytes = 0;
    bool is_set = false;
    std::uint64_t members = 0;        ///< of a set
    std::string dtype;                ///< of a tensor
    std::vector<std::int64_t> shape;  ///< of a tensor
    std::string published_at;         ///< ISO 8601
};

/// A named tensor or set as it was when it was read.
///
/// Ownership: a handle; copies share what was read. Its tensors may be kept without it. Thread safety: all methods from
/// any thread.
class NamedTensor {
public:
    const std::string& name() const;
    std::uint64_t version() const;
    const std::map<std::string, std::string>& metadata() const;
    bool is_set() const;

    /// The one tensor. Throws std::out_of_range for a set.
    const TensorRef& tensor() const;

    /// A member of a set. Throws std::out_of_range that names it, for a single tensor too.
    const TensorRef& operator[](std::string_view member) const;
    bool contains(std::string_view member) const;
    std::size_t size() const;                ///< members; 0 for a single tensor
    std::vector<std::string> names() const;  ///< of the members, sorted

    /// The members as a map of your own; the tensors are not copied.
    template <class Tensor = TensorRef>
    std::map<std::string, Tensor> map() const {
        std::map<std::string, Tensor> result;
        for (std::string& member : names()) {
            Tensor one = (*this)[member];
            result.emplace_hint(result.end(), std::move(member), std::move(one));
        }
        return result;
    }

    /// As a safetensors file, with the metadata; a single tensor becomes a member of its name. The file is there whole
    /// or not at all. Throws std::runtime_error that says why it could not be written.
    void save(const std::string& path) const;

    struct Content;
    explicit NamedTensor(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
    const Content& content() const { return *content_; }

private:
    std::shared_ptr<const Content> content_;
};

namespace detail {
/// A map, or any range of pairs, from names to tensors.
template <class Range>
concept NamedTensorRange = requires(const Range& range) {
    { range.begin()->first } -> std::convertible_to<std::string_view>;
    { range.begin()->second } -> std::convertible_to<TensorRef>;
};
}  // namespace detail

/// The named tensors of one server, as one client sees them: those of its own user or token.
///
/// Ownership: holds a copy of the client. Thread safety: all methods from any thread. Blocking: each method blocks for
/// one round trip, list() for one a page, watch() as long as it is told. Errors: RpcError and its children;
/// UnknownOrExpired for a name that is not there.
class NamedTensors {
public:
    explicit NamedTensors(Client client) : client_(std::move(client)) {}

    /// The server keeps a copy: what happens to `tensor` afterwards does not matter. Throws InvalidParams for a name
    /// that cannot be one, ServerOutOfMemory beyond the server's limits, InvalidValue for a tensor that cannot be sent.
    Published put(std::string_view name, const TensorRef& tensor, const PutOptions& options = {}) const;

    /// A set, published in one step.
    template <detail::NamedTensorRange Tensors>
    Published put(std::string_view name, const Tensors& tensors, const PutOptions& options = {}) const {
        Members members;
        for (const auto& [member, tensor] : tensors)
            members.emplace_back(member, tensor);
        return put_set(name, members, options);
    }

    /// A set from a safetensors file, whose metadata comes along (below that of `options`). Throws std::runtime_error
    /// that says what is wrong with the file.
    Published put_file(std::string_view name, const std::string& path, const PutOptions& options = {}) const;

    /// `name`, or `set/member` for one tensor of a set. Throws UnknownOrExpired also when the version is another one
    /// than `version`: old versions are their readers' only.
    NamedTensor get(std::string_view name, std::optional<std::uint64_t> version = std::nullopt) const;
    /// Some members of a set. Throws InvalidParams for one that it does not have.
    NamedTensor get(std::string_view name, const std::vector<std::string>& members) const;

    /// Fetches `name`, or `set/member`, as a file in parallel ranges over several connections: for servers on other
    /// hosts, where get() has one connection and begins anew when it breaks. What has come stays when a connection
    /// breaks, and the rest is asked for again (ClientOptions::retry). Damaged bytes are fetched once more. All of it
    /// is of one version; a pull that new versions interrupt each time ends with TensorExpired. At most
    /// ClientOptions::max_answer_bytes; CallOptions::timeout bounds the whole. A set with members of complex32 or
    /// complex128 is for get(): files of sets lack these. Throws std::invalid_argument for options that cannot be.
    NamedTensor pull(std::string_view name, const PullOptions& options = {}) const;

    /// put() for servers on other hosts: sends the tensor in parallel parts over several connections. A part that does
    /// not arrive, or damaged, is sent again (ClientOptions::retry); readers see the tensor when all of it is there.
    /// CallOptions::timeout bounds the whole. Throws what put() throws, std::invalid_argument for options that cannot
    /// be.
    Published push(std::string_view name, const TensorRef& tensor, const PushOptions& options = {}) const;

    /// A set, published in one step.
    template <detail::NamedTensorRange Tensors>
    Published push(std::string_view name, const Tensors& tensors, const PushOptions& options = {}) const {
        Members members;
        for (const auto& [member, tensor] : tensors)
            members.emplace_back(member, tensor);
        return push_set(name, members, options);
    }

    /// A set from a safetensors file, as put_file() has it.
    Published push_file(std::string_view name, const std::string& path, const PushOptions& options = {}) const;

    /// All whose name begins with `prefix`, by name; an admin sees everybody's.
    std::vector<NamedTensorInfo> list(std::string_view prefix = {}) const;

    /// False when there is none of that name. Readers keep theirs.
    bool remove(std::string_view name) const;

    /// Blocks until the name has another version than `after` (0: until there is one) and returns it; nothing when the
    /// time was over first. Throws UnknownOrExpired when `after` is not 0 and the name is not there, or was removed.
    std::optional<std::uint64_t> watch(std::string_view name, std::uint64_t after,
                                       std::chrono::milliseconds timeout) const;

private:
    using Members = std::vector<std::pair<std::string, TensorRef>>;
    Published put_set(std::string_view name, const Members& members, const PutOptions& options) const;
    Published push_set(std::string_view name, const Members& members, const PushOptions& options) const;
    Client repeating() const;

    Client client_;
};

}  // namespace shared_tensor
