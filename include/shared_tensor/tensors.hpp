#pragma once

// Named tensors: one process of a user publishes them in a server, and other processes of the user read them.
//
//     NamedTensors names(client);
//     names.put("step", tensor);                                   // one tensor
//     names.put("weights", model_state);                           // a set: std::map<std::string, at::Tensor>
//     names.put_file("weights", "weights.safetensors");            // a set, straight from a file
//     NamedTensor weights = names.get("weights");                  // in another process: no copy on the same host
//     use(weights["layer.0.weight"], weights.version());
//     if (auto next = names.watch("weights", weights.version(), 60s)) weights = names.get("weights");
//
// A set is published in one step, under one version. A reader keeps the version that it read as long as any of its
// tensors lives, even if new versions are published; the memory is given back with the last tensor. A set lies in one
// allocation, so it costs one transfer, however many tensors it has. A reader's writes to its tensors are private.
// A version in which only some tensors changed (PutOptions::base) shares the memory of the others with the one before.

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/client.hpp>

namespace shared_tensor {

namespace client {
struct Publication;
}

/// The result of a publication.
struct Published {
    std::string name;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;   ///< memory that the server holds for it
    std::uint64_t copied = 0;  ///< bytes that this process and the server copied; not those that crossed a network
    /// How the bytes reached the server: "shm", "cuda_ipc", "body", "base64" or "data"; "upload" from push() and of
    /// later versions. Empty if no tensor has elements.
    std::string transport{};
};

/// Dtype and shape of a tensor to be made.
struct TensorForm {
    DType dtype = DType::float32;
    std::vector<std::int64_t> shape{};
};

struct PutOptions {
    /// Publishes only if this is the name's current version (0: if the name does not exist). Else throws InvalidParams.
    std::optional<std::uint64_t> if_version{};
    /// Short texts for readers, at most 256 KiB together.
    std::map<std::string, std::string> metadata{};
    /// Of a set: the tensors are those that differ from this version, or are new. The other members, and metadata with
    /// other keys, stay as they are in this version, and nothing is copied of them. It must be the current version,
    /// else InvalidParams is thrown. Not together with if_version.
    std::optional<std::uint64_t> base{};
    /// Publishes under this version and not the next one: for copies of a set on several servers, which then have the
    /// same version. From 1 to 2^52, and above the current version, else throws InvalidParams.
    std::optional<std::uint64_t> version{};
};

/// Is told how many bytes of a file have arrived at the other side, and the file's size. The numbers are equal at the
/// end; a transfer that has to begin again also begins again to count. Called on the threads of the transfer, by one at
/// a time; a slow call delays the transfer. An exception ends the transfer, which throws it.
using TransferProgress = std::function<void(std::uint64_t bytes, std::uint64_t size)>;

struct NamedTensorInfo {
    std::string name, owner;
    std::uint64_t version = 0, bytes = 0;
    bool is_set = false;
    std::uint64_t members = 0;        ///< for a set
    std::string dtype;                ///< for a tensor
    std::vector<std::int64_t> shape;  ///< for a tensor
    std::string published_at;         ///< ISO 8601
};

/// One version of a named tensor or set, as it was read.
///
/// Ownership: a handle; copies share the tensors. The tensors may outlive it. Thread safety: any thread may call any
/// method.
class NamedTensor {
public:
    const std::string& name() const;
    std::uint64_t version() const;
    const std::map<std::string, std::string>& metadata() const;
    bool is_set() const;

    /// The tensor. Throws std::out_of_range for a set.
    const TensorRef& tensor() const;

    /// A member of a set. Throws std::out_of_range (with the member's name) if there is no such member, or for a single
    /// tensor.
    const TensorRef& operator[](std::string_view member) const;
    bool contains(std::string_view member) const;
    std::size_t size() const;                ///< number of members; 0 for a single tensor
    std::vector<std::string> names() const;  ///< names of the members, sorted

    /// Returns a map of the members. The tensors' memory is not copied.
    template <class Tensor = TensorRef>
    std::map<std::string, Tensor> map() const {
        std::map<std::string, Tensor> result;
        for (std::string& member : names()) {
            Tensor one = (*this)[member];
            result.emplace_hint(result.end(), std::move(member), std::move(one));
        }
        return result;
    }

    /// Writes a safetensors file, with the metadata. A single tensor becomes a member with its own name. Never leaves
    /// an incomplete file. Throws std::runtime_error with the reason if the file cannot be written.
    void save(const std::string& path) const;
    /// Reads a safetensors file as a set with its metadata. name() is the file's name without its suffix, version() is
    /// 0. Throws std::runtime_error with the reason if the file cannot be read.
    static NamedTensor load(const std::string& path);

    struct Content;
    explicit NamedTensor(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
    const Content& content() const { return *content_; }

private:
    std::shared_ptr<const Content> content_;
};

/// A part of a tensor: `size` elements from `first` on, in each dimension.
struct TensorPart {
    std::vector<std::int64_t> first, size;
    friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

/// How several processes that pull the same version at the same time pass it on to each other.
struct SwarmOptions {
    /// Where this process listens for the other receivers: they reach it at the address from which it calls the server.
    /// Empty: at all addresses of this host, of IPv4 and of IPv6.
    std::string host{};
    int port = 0;  ///< 0: the kernel chooses
    /// How much longer pull() blocks when it has all bytes and other receivers lack some, so that they get them here.
    std::chrono::milliseconds linger{0};
    /// The other receivers are trusted, for example because all of them run for one user: their pieces are checked for
    /// damage, by XXH3, and not for forgery, by SHA-256, which takes 0.4 s of processor time for 1 GiB.
    bool trusted = false;
};

/// How a named tensor is fetched over the network: in ranges, or with ClientOptions::compression by one request for the
/// whole compressed file (if its connection breaks or is too slow, ranges are used).
struct PullOptions {
    /// The wanted version; throws UnknownOrExpired if it is not the current version. nullopt: the current version.
    std::optional<std::uint64_t> version{};
    /// Only rows `first_row` to `last_row` (not included) of a tensor; nullopt: from the first row, to the last row.
    std::optional<std::int64_t> first_row{}, last_row{};
    std::optional<TensorPart> part{};                ///< only this part of a tensor; not together with rows
    std::size_t connections = 4;                     ///< at once; limited by ClientOptions::connections
    std::size_t range_bytes = std::size_t{4} << 20;  ///< size of one request's range
    bool verify = true;                              ///< checks each range against a digest from the server
    TransferProgress progress{};                     ///< called after each range; a compressed file is one range
    /// An earlier version that this process has, of the same name or another. Blocks of 64 KiB of a member that are the
    /// same there are copied and not fetched; the server sends a digest for each block. Nothing is compressed then.
    std::optional<NamedTensor> previous{};
    /// Receivers of one version pass its pieces on, so that each piece leaves the server about once. Pieces of others
    /// are checked by SHA-256 of the server (SwarmOptions::trusted: by XXH3). A server that uses TLS needs
    /// ClientOptions::tls with a certificate of this process, which is used for the other receivers; without it, pull()
    /// throws std::invalid_argument. If the server takes no more receivers, all comes from the server. With `previous`,
    /// only pieces (of 1 MiB or more) of which more than a quarter is missing come from others; the server completes
    /// the rest, which is passed on too.
    std::optional<SwarmOptions> swarm{};
    /// Returns uninitialised host memory of at least `bytes` bytes, contiguous and aligned to 64, for what is pulled.
    /// Default: ordinary memory of this process, which is also used for files of less than 1 MiB (in a swarm: 64 KiB),
    /// for compressed ones, and if the version changes again and again during the pull. May be called again after such
    /// a change. What it throws is thrown by pull(). If it is memory of Client::empty_in_shared_memory(), put() of all
    /// the tensors by that client copies nothing: so a server gets a set of another host.
    std::function<TensorRef(std::uint64_t bytes)> memory{};
};

/// How a named tensor is sent over the network.
struct PushOptions {
    PutOptions put{};
    std::size_t connections = 4;                    ///< at once; limited by ClientOptions::connections
    std::size_t part_bytes = std::size_t{1} << 20;  ///< size of one request's part
    bool verify = true;                             ///< sends a digest with each part; the server checks it
    /// If a push fails, its parts stay in the server for --upload-ttl. A later push of the same data to the same name,
    /// by this or another process, sends only the missing parts. Computes a digest of all data first; sends a digest
    /// with each part, even without `verify`. Not possible with PutOptions::if_version, base and version, since the
    /// server could not know which push published the version.
    bool resume = false;
    TransferProgress progress{};  ///< called after each part
};

namespace detail {
/// A map, or any range of pairs, from names to tensors.
template <class Range>
concept NamedTensorRange = requires(const Range& range) {
    { range.begin()->first } -> std::convertible_to<std::string_view>;
    { range.begin()->second } -> std::convertible_to<TensorRef>;
};
}  // namespace detail

/// The named tensors of a client's user or token in one server.
///
/// Ownership: holds a copy of the client. Thread safety: any thread may call any method. Blocking: each method blocks
/// until it is done (list() makes one request for each page), watch() up to its timeout. Errors: RpcError and its
/// children; UnknownOrExpired if the name does not exist.
class NamedTensors {
public:
    explicit NamedTensors(Client client) : client_(std::move(client)) {}

    /// Publishes a tensor. Later writes to `tensor` do not change what was published. On the server's host it is copied
    /// once, wherever it lies; a new version of 8 MiB or more is uploaded, into memory of an older version. A tensor of
    /// 1 MiB or more in memory of Client::empty_in_shared_memory() is not copied: the server keeps this memory, and
    /// later writes to the tensor cost this process a copy of the changed pages. See Published::copied. Throws
    /// InvalidParams for an invalid name, ServerOutOfMemory beyond the server's limits, InvalidValue for a tensor that
    /// cannot be sent.
    Published put(std::string_view name, const TensorRef& tensor, const PutOptions& options = {}) const;

    /// Publishes a set in one step. Nothing is copied if all members lie in one piece of shared memory: see
    /// empty_set().
    template <detail::NamedTensorRange Tensors>
    Published put(std::string_view name, const Tensors& tensors, const PutOptions& options = {}) const {
        return put_set(name, {tensors.begin(), tensors.end()}, options);
    }

    /// Makes uninitialised tensors in one piece of memory that this client shares with its server. put() of all of them
    /// copies nothing if they have 1 MiB or more together: the server keeps this memory. Make new ones for the next
    /// version, because later writes to these cost a copy of the changed pages. Without shared memory (another host)
    /// the tensors lie in ordinary memory.
    std::map<std::string, TensorRef> empty_set(const std::map<std::string, TensorForm>& forms) const;

    /// Publishes a safetensors file as a set, with the file's metadata; metadata of `options` has precedence. On the
    /// server's host the file is read once, into memory that the server keeps. Throws std::runtime_error if the file is
    /// missing or invalid.
    Published put_file(std::string_view name, const std::string& path, const PutOptions& options = {}) const;

    /// Fetches `name`, or `set/member` for one tensor of a set. Throws UnknownOrExpired also if `version` is not the
    /// current version: old versions cannot be fetched.
    NamedTensor get(std::string_view name, std::optional<std::uint64_t> version = std::nullopt) const;
    /// Fetches `name`. If it is a set, blocks of memory that `previous` (any version) has already are not fetched or
    /// mapped again: unchanged members are the tensors of `previous`, in the same memory. Blocks to which this process
    /// wrote, and blocks of less than 32 KiB or from another host, are fetched. For other hosts: PullOptions::previous.
    NamedTensor get(std::string_view name, const NamedTensor& previous) const;
    /// Fetches some members of a set. Throws InvalidParams for a member that the set does not have, and
    /// UnknownOrExpired if `version` is not the current version.
    NamedTensor get(std::string_view name, const std::vector<std::string>& members,
                    std::optional<std::uint64_t> version = std::nullopt) const;

    /// Fetches `name`, or `set/member`, as a file in parallel ranges over several connections. Use it for servers on
    /// other hosts: get() uses one connection, and starts again if it breaks. If a connection breaks, received bytes
    /// are kept and the rest is fetched again; damaged bytes are fetched again too (ClientOptions::retry). All bytes
    /// are of one version: if new versions interrupt each try, pull() throws TensorExpired.
    /// ClientOptions::max_answer_bytes does not limit a file; a file larger than the memory that this process may use
    /// is rejected with RpcError. CallOptions::timeout limits the whole pull. A set with members of complex32 or
    /// complex128, which safetensors files cannot hold, comes as get() fetches it, by one connection. Throws
    /// std::invalid_argument for invalid options.
    NamedTensor pull(std::string_view name, const PullOptions& options = {}) const;

    /// As put(), for servers on other hosts: sends the tensor in parallel parts over several connections. A lost or
    /// damaged part is sent again (ClientOptions::retry). Readers see the tensor when all parts have arrived.
    /// CallOptions::timeout limits the whole push. Throws the errors of put(), and std::invalid_argument for invalid
    /// options.
    Published push(std::string_view name, const TensorRef& tensor, const PushOptions& options = {}) const;

    /// Publishes a set in one step.
    template <detail::NamedTensorRange Tensors>
    Published push(std::string_view name, const Tensors& tensors, const PushOptions& options = {}) const {
        return push_set(name, {tensors.begin(), tensors.end()}, options);
    }

    /// Publishes a safetensors file as a set, as put_file() does.
    Published push_file(std::string_view name, const std::string& path, const PushOptions& options = {}) const;

    /// Whether get() and put() share memory with the server: it is on this host.
    bool is_near() const;

    /// Lists the names that begin with `prefix`, in alphabetical order; for an admin, the names of all users.
    std::vector<NamedTensorInfo> list(std::string_view prefix = {}) const;

    /// Removes a name. Returns false if the name does not exist. Tensors that were read before stay valid.
    bool remove(std::string_view name) const;

    /// Blocks until the name has another version than `after` (0: until the name exists), and returns that version.
    /// Returns nullopt after the timeout. Throws UnknownOrExpired if `after` is not 0 and the name does not exist or is
    /// removed.
    std::optional<std::uint64_t> watch(std::string_view name, std::uint64_t after,
                                       std::chrono::milliseconds timeout) const;

private:
    using Members = std::vector<std::pair<std::string, TensorRef>>;
    Published put_content(std::string_view name, const client::Publication& content, const PutOptions& options) const;
    Published put_set(std::string_view name, const Members& members, const PutOptions& options) const;
    Published push_set(std::string_view name, const Members& members, const PushOptions& options) const;
    template <class Tensors>
    std::optional<Published> upload_next(std::string_view name, const Tensors& tensors, std::uint64_t bytes,
                                         const PutOptions& options) const;
    bool has(std::string_view name) const;
    Client repeating() const;
    std::map<std::string, std::string> fetch_metadata(std::string_view name, std::uint64_t version) const;

    Client client_;
};

}  // namespace shared_tensor
