#include "client/transfers/named_tensors.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "client/call/core.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/handle.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor {

namespace {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr milliseconds kLongestWait{20'000};  // in one request: below the server's limit
constexpr milliseconds kAnswerTime{10'000};   // in addition to the time that a request waits in the server
constexpr milliseconds kForEver{std::chrono::hours(24 * 365)};

using Metadata = std::map<std::string, std::string>;

/// The parameters that all forms of tensor.put have.
class PutArguments : public CallArguments {
public:
    PutArguments(std::string_view name, const PutOptions& options) : name_(name), options_(&options) {}

    bool empty() const final { return false; }
    void write(ValueWriter params) const final {
        params.object();
        params.member("name").string(name_);
        if (options_->if_version) params.member("if_version").unsigned_integer(*options_->if_version);
        if (!options_->metadata.empty()) Codec<Metadata>::write(params.member("metadata"), options_->metadata);
        write_tensors(params);
    }

protected:
    ~PutArguments() = default;

private:
    virtual void write_tensors(ValueWriter params) const = 0;

    std::string_view name_;
    const PutOptions* options_;
};

class PutTensor final : public PutArguments {
public:
    PutTensor(std::string_view name, const PutOptions& options, const TensorRef& tensor)
        : PutArguments(name, options), tensor_(&tensor) {}

private:
    void write_tensors(ValueWriter params) const override { params.member("tensor").tensor(*tensor_); }
    const TensorRef* tensor_;
};

class PutSet final : public PutArguments {
public:
    PutSet(std::string_view name, const PutOptions& options, const tensor::TensorSet& set)
        : PutArguments(name, options), set_(&set) {}

private:
    void write_tensors(ValueWriter params) const override {
        tensor::write_manifest(params.member("manifest"), set_->manifest);
        params.member("data").tensor(set_->data->tensor());
    }
    const tensor::TensorSet* set_;
};

std::uint64_t number_in(const ValueReader& object, std::string_view name) {
    if (!object.has(name)) object.fail("object with " + std::string(name));
    return Codec<std::uint64_t>::read(object.member(name));
}

std::string text_in(const ValueReader& object, std::string_view name) {
    return object.has(name) ? Codec<std::string>::read(object.member(name)) : std::string();
}

class PutResult final : public detail::ResultSlot {
public:
    void read(const ValueReader& reader) override {
        published = {text_in(reader, "name"), number_in(reader, "version"), number_in(reader, "bytes")};
    }
    Published published;
};

class GetResult final : public detail::ResultSlot {
public:
    void read(const ValueReader& reader) override {
        content->name = text_in(reader, "name");
        content->version = number_in(reader, "version");
        if (reader.has("metadata")) content->metadata = Codec<Metadata>::read(reader.member("metadata"));
        if (reader.has("tensor")) {
            content->tensor = handle_in(reader, "tensor");
        } else {
            read_set(reader);
        }
    }
    std::shared_ptr<NamedTensor::Content> content = std::make_shared<NamedTensor::Content>();

private:
    static codec::TensorPointer handle_in(const ValueReader& reader, std::string_view name) {
        const ValueReader member = reader.member(name);
        member.require(Kind::tensor, "tensor");
        return tensor::make_handle(member.tensor());
    }
    void read_set(const ValueReader& reader) {
        if (!reader.has("manifest") || !reader.has("data")) reader.fail("object with tensor, or manifest and data");
        tensor::TensorSet set;
        set.data = handle_in(reader, "data");
        if (!tensor::is_bytes(set.data)) reader.member("data").fail("uint8 tensor of one dimension");
        set.manifest = tensor::read_manifest(reader.member("manifest"), set.data->bytes(),
                                             std::numeric_limits<std::size_t>::max());
        for (const auto& [name, member] : set.manifest)
            content->members.emplace_hint(content->members.end(), name, tensor::member_of(set, member));
    }
};

NamedTensorInfo info_of(const ValueReader& reader) {
    NamedTensorInfo info{text_in(reader, "name"),        text_in(reader, "owner"),
                         number_in(reader, "version"),   number_in(reader, "bytes"),
                         reader.has("members"),          0,
                         text_in(reader, "dtype"),       {},
                         text_in(reader, "published_at")};
    if (info.is_set) info.members = number_in(reader, "members");
    if (reader.has("shape")) info.shape = Codec<std::vector<std::int64_t>>::read(reader.member("shape"));
    return info;
}

class ListResult final : public detail::ResultSlot {
public:
    void read(const ValueReader& reader) override {
        const ValueReader tensors = reader.member("tensors");
        tensors.require(Kind::array, "array");
        for (std::size_t i = 0; i < tensors.size(); ++i)
            list.push_back(info_of(tensors.element(i)));
        cursor = text_in(reader, "next_cursor");
    }
    std::vector<NamedTensorInfo> list;
    std::string cursor;
};

class VersionResult final : public detail::ResultSlot {
public:
    void read(const ValueReader& reader) override { version = number_in(reader, "version"); }
    std::uint64_t version = 0;
};

[[noreturn]] void no_member(const NamedTensor::Content& content, std::string_view member) {
    throw std::out_of_range("\"" + content.name + "\" has no member \"" + std::string(member) + '"');
}

}  // namespace

const std::string& NamedTensor::name() const { return content_->name; }
std::uint64_t NamedTensor::version() const { return content_->version; }
const std::map<std::string, std::string>& NamedTensor::metadata() const { return content_->metadata; }
bool NamedTensor::is_set() const { return content_->tensor == nullptr; }
bool NamedTensor::contains(std::string_view member) const { return content_->members.contains(member); }
std::size_t NamedTensor::size() const { return content_->members.size(); }

const TensorRef& NamedTensor::tensor() const {
    if (is_set())
        throw std::out_of_range("\"" + content_->name + "\" is a set of " + std::to_string(size()) +
                                " tensors: name one of its members");
    return content_->tensor->tensor();
}

const TensorRef& NamedTensor::operator[](std::string_view member) const {
    const auto found = content_->members.find(member);
    if (found == content_->members.end()) no_member(*content_, member);
    return found->second->tensor();
}

std::vector<std::string> NamedTensor::names() const {
    std::vector<std::string> names;
    names.reserve(size());
    for (const auto& [name, tensor] : content_->members)
        names.push_back(name);
    return names;
}

void NamedTensor::save(const std::string& path) const {
    const tensor::Metadata metadata(content_->metadata.begin(), content_->metadata.end());
    if (is_set()) return tensor::write_safetensors_file(path, content_->members, metadata);
    tensor::write_safetensors_file(path, {{content_->name, content_->tensor}}, metadata);
}

Client NamedTensors::repeating() const {
    CallOptions options = client_.options_;
    options.idempotent = true;
    options.idempotency_key.clear();
    return client_.with(options);
}

Published NamedTensors::put(std::string_view name, const TensorRef& tensor, const PutOptions& options) const {
    PutResult result;
    client_.call_into("tensor.put", PutTensor(name, options, tensor), result);
    return std::move(result.published);
}

namespace {

/// Takes memory that is shared with the server if possible, so that the tensors are sent without a copy.
tensor::TakeBlock block_from(const client::Core& core) {
    return [&core](std::uint64_t bytes) {
        try {
            client::SharedBytes shared = core.take_shared(bytes);
            if (shared.data != nullptr) return tensor::Block{shared.data, std::move(shared.owner)};
        } catch (const tensor::CannotLend&) {  // more than this process shares at once
        }
        return tensor::plain_block(bytes);
    };
}

}  // namespace

Published NamedTensors::put_set(std::string_view name, const Members& members, const PutOptions& options) const {
    const tensor::TensorMap tensors = by_name(members);
    PutResult result;
    const auto set = tensor::gather_set(tensors, block_from(*client_.core_));
    client_.call_into("tensor.put", PutSet(name, options, set), result);
    return std::move(result.published);
}

Published NamedTensors::put_file(std::string_view name, const std::string& path, const PutOptions& options) const {
    const auto file = tensor::read_safetensors_file(path, block_from(*client_.core_));
    PutOptions all = options;
    all.metadata.insert(file.metadata.begin(), file.metadata.end());
    PutResult result;
    client_.call_into("tensor.put", PutSet(name, all, file.set), result);
    return std::move(result.published);
}

NamedTensor NamedTensors::get(std::string_view name, std::optional<std::uint64_t> version) const {
    GetResult result;
    repeating().call_into(
        "tensor.get", detail::ArgumentsOf(named("name", name), named("version", version), named("form", "manifest")),
        result);
    return NamedTensor(std::move(result.content));
}

NamedTensor NamedTensors::get(std::string_view name, const std::vector<std::string>& members) const {
    GetResult result;
    repeating().call_into(
        "tensor.get", detail::ArgumentsOf(named("name", name), named("members", members), named("form", "manifest")),
        result);
    return NamedTensor(std::move(result.content));
}

std::vector<NamedTensorInfo> NamedTensors::list(std::string_view prefix) const {
    std::vector<NamedTensorInfo> all;
    ListResult page;
    do {
        const std::string cursor = std::exchange(page.cursor, {});
        page.list.clear();
        repeating().call_into(
            "tensor.list", detail::ArgumentsOf(named("prefix", prefix), named("cursor", cursor), named("limit", 1000)),
            page);
        std::move(page.list.begin(), page.list.end(), std::back_inserter(all));
    } while (!page.cursor.empty());
    return all;
}

bool NamedTensors::remove(std::string_view name) const {
    try {
        VersionResult result;
        client_.call_into("tensor.delete", detail::ArgumentsOf(named("name", name)), result);
        return true;
    } catch (const UnknownOrExpired&) {
        return false;
    }
}

std::optional<std::uint64_t> NamedTensors::watch(std::string_view name, std::uint64_t after,
                                                 milliseconds timeout) const {
    const auto deadline = Steady::now() + std::clamp(timeout, milliseconds(0), kForEver);
    for (;;) {
        const auto rest = std::chrono::ceil<milliseconds>(deadline - Steady::now());
        const auto step = std::clamp(rest, milliseconds(0), kLongestWait);
        CallOptions options = repeating().options_;
        options.timeout = step + kAnswerTime;
        VersionResult result;
        client_.with(options).call_into(
            "tensor.watch",
            detail::ArgumentsOf(named("name", name), named("after_version", after), named("timeout_ms", step.count())),
            result);
        if (result.version != after) return result.version;
        if (Steady::now() >= deadline) return std::nullopt;
    }
}

}  // namespace shared_tensor
