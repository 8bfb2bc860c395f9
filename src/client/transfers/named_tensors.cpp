#include "client/transfers/publication.hpp"
#include "client/transfers/transfer.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/log/log.hpp"
#include "local/segments/received_segment.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor {

namespace {

using std::chrono::milliseconds;

using Metadata = std::map<std::string, std::string>;

/// The parameters of tensor.put: of a tensor, or of a set.
class PutArguments final : public CallArguments {
public:
    PutArguments(std::string_view name, const PutOptions& options, const TensorRef* tensor,
                 const tensor::TensorSet* set)
        : name_(name), options_(&options), tensor_(tensor), set_(set) {}

    bool empty() const override { return false; }
    void write(ValueWriter params) const override {
        params.object();
        params.member("name").string(name_);
        if (options_->if_version) params.member("if_version").unsigned_integer(*options_->if_version);
        if (options_->version) params.member("version").unsigned_integer(*options_->version);
        if (options_->base) params.member("base").unsigned_integer(*options_->base);
        if (!options_->metadata.empty()) Codec<Metadata>::write(params.member("metadata"), options_->metadata);
        if (tensor_ != nullptr) return params.member("tensor").tensor(*tensor_);
        tensor::write_manifest(params.member("manifest"), set_->manifest);
        params.member("data").tensor(set_->data->tensor());
    }

private:
    std::string_view name_;
    const PutOptions* options_;
    const TensorRef* tensor_;
    const tensor::TensorSet* set_;
};

std::uint64_t number_in(const ValueReader& object, std::string_view name) {
    if (!object.has(name)) object.fail("object with " + std::string(name));
    return Codec<std::uint64_t>::read(object.member(name));
}

std::string text_in(const ValueReader& object, std::string_view name) {
    return object.has(name) ? Codec<std::string>::read(object.member(name)) : std::string();
}

Published published(const ValueReader& reader) {
    return {text_in(reader, "name"),
            number_in(reader, "version"),
            number_in(reader, "bytes"),
            reader.has("copied") ? number_in(reader, "copied") : 0,
            {}};
}

std::uint64_t version_in(const ValueReader& reader) { return number_in(reader, "version"); }

codec::TensorPointer handle_in(const ValueReader& reader, std::string_view name) {
    const ValueReader member = reader.member(name);
    member.require(Kind::tensor, "tensor");
    return tensor::make_handle(member.tensor());
}

/// Adds the members of a block. Takes its data from `known` if the answer does not have them.
void read_block(const ValueReader& reader, const tensor::TensorMap& known, NamedTensor::Content& content) {
    reader.require(Kind::object, "object with manifest and data");
    tensor::TensorSet set;
    const std::string id = text_in(reader, "id");
    if (reader.has("data")) {
        set.data = handle_in(reader, "data");
        if (!tensor::is_bytes(set.data)) reader.member("data").fail("uint8 tensor of one dimension");
    } else {
        const auto found = known.find(id);
        if (found == known.end()) reader.fail("object with data");
        set.data = found->second;
    }
    set.manifest =
        tensor::read_manifest(reader.member("manifest"), set.data->bytes(), std::numeric_limits<std::size_t>::max());
    for (const auto& [name, member] : set.manifest)
        content.members.emplace(name, tensor::member_of(set, member));
    if (!id.empty()) content.blocks.emplace(id, std::move(set.data));
}

std::shared_ptr<NamedTensor::Content> content_of(const ValueReader& reader, const tensor::TensorMap& known) {
    auto content = std::make_shared<NamedTensor::Content>();
    content->name = text_in(reader, "name");
    content->version = version_in(reader);
    if (reader.has("metadata")) content->metadata = Codec<Metadata>::read(reader.member("metadata"));
    if (reader.has("tensor")) {
        content->tensor = handle_in(reader, "tensor");
        return content;
    }
    if (!reader.has("blocks")) reader.fail("object with tensor or blocks");
    const ValueReader blocks = reader.member("blocks");
    blocks.require(Kind::array, "array of blocks");
    for (std::size_t i = 0; i < blocks.size(); ++i)
        read_block(blocks.element(i), known, *content);
    return content;
}

/// The result of tensor.get. `known`: blocks that the request named as known.
struct ContentSlot final : detail::ResultSlot {
    explicit ContentSlot(tensor::TensorMap the_known = {}) : known(std::move(the_known)) {}
    void read(const ValueReader& reader) override { content = content_of(reader, known); }

    const tensor::TensorMap known;
    std::shared_ptr<NamedTensor::Content> content;
};

/// Reads the result of tensor.get with the form "metadata".
Metadata metadata_in(const ValueReader& reader) {
    return reader.has("metadata") ? Codec<Metadata>::read(reader.member("metadata")) : Metadata();
}

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

struct Page {
    std::vector<NamedTensorInfo> list;
    std::string cursor;
};

Page page_of(const ValueReader& reader) {
    Page page;
    const ValueReader tensors = reader.member("tensors");
    tensors.require(Kind::array, "array");
    for (std::size_t i = 0; i < tensors.size(); ++i)
        page.list.push_back(info_of(tensors.element(i)));
    page.cursor = text_in(reader, "next_cursor");
    return page;
}

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

NamedTensor NamedTensor::load(const std::string& path) {
    auto file = tensor::read_safetensors_file(path, tensor::plain_block);
    auto content = std::make_shared<Content>();
    content->name = std::filesystem::path(path).stem().string();
    content->metadata.insert(file.metadata.begin(), file.metadata.end());
    for (const auto& [name, member] : file.set.manifest)
        content->members.emplace_hint(content->members.end(), name, tensor::member_of(file.set, member));
    return NamedTensor(std::move(content));
}

Client NamedTensors::repeating() const {
    CallOptions options = client_.options_;
    options.idempotent = true;
    options.idempotency_key.clear();
    return client_.with(options);
}

bool NamedTensors::is_near() const { return client_.core_->ports().memory() != nullptr; }

/// False also for a client that may not list names.
bool NamedTensors::has(std::string_view name) const {
    client::SlotOf<page_of> page;
    try {
        repeating().call_into("tensor.list", detail::ArgumentsOf(named("prefix", name), named("limit", 1)), page);
    } catch (const NotAuthorised&) {
        return false;
    }
    return !page.value.list.empty() && page.value.list.front().name == name;  // the first in alphabetical order
}

/// Uploads a version of a name that exists: the server then needs no new memory. Nullopt if the tensors must be sent in
/// another way.
template <class Tensors>
std::optional<Published> NamedTensors::upload_next(std::string_view name, const Tensors& tensors, std::uint64_t bytes,
                                                   const PutOptions& options) const {
    if (!client_.options_.idempotency_key.empty()) return std::nullopt;  // tensor.put rejects the key
    if (bytes < client::kMinUploaded || client_.core_->ports().memory() == nullptr || !has(name)) return std::nullopt;
    try {
        Published made = push(name, tensors, PushOptions{.put = options, .verify = false});
        made.copied += bytes;
        return made;
    } catch (const InvalidValue& error) {  // a dtype that files do not have
        log::debug('"', name, "\" is not uploaded: ", error.what());
    } catch (const ServerOutOfMemory& error) {
        log::debug('"', name, "\" is not uploaded: ", error.what());
    } catch (const InvalidParams& error) {
        const std::string& rejected = client::details_of(error).parameter;
        if (rejected != "size" && rejected != "as") throw;  // servers up to 0.2 do not know `as`
        log::debug('"', name, "\" is not uploaded: ", error.what());
    }
    return std::nullopt;
}

Published NamedTensors::put(std::string_view name, const TensorRef& tensor, const PutOptions& options) const {
    const client::Core& core = *client_.core_;
    const codec::TensorPointer handle = tensor::make_handle(tensor);
    if (const auto there = client::publication_in_place(core, handle)) return put_content(name, *there, options);
    if (tensor::is_plain(handle)) {
        if (auto made = upload_next(name, tensor, handle->bytes(), options)) return *std::move(made);
    }
    return put_content(name, client::publication_by_copy(core, handle), options);
}

Published NamedTensors::put_set(std::string_view name, const Members& members, const PutOptions& options) const {
    const client::Core& core = *client_.core_;
    tensor::TensorMap tensors = by_name(members);
    if (const auto there = client::publication_in_place(core, tensors)) return put_content(name, *there, options);
    if (tensor::is_plain(tensors)) {
        if (auto made = upload_next(name, members, client::bytes_of(tensors), options)) return *std::move(made);
    }
    return put_content(name, client::publication_by_copy(core, tensors), options);
}

std::map<std::string, TensorRef> NamedTensors::empty_set(const std::map<std::string, TensorForm>& forms) const {
    tensor::Manifest manifest;
    for (const auto& [name, form] : forms)
        manifest.emplace(name,
                         tensor::Member{form.dtype, form.shape, 0, TensorRef::count_bytes(form.shape, form.dtype)});
    const std::uint64_t bytes = tensor::lay_out(manifest);
    const auto set = tensor::make_set(std::move(manifest), bytes, [this](std::uint64_t count) {
        const auto size = static_cast<std::int64_t>(count);
        const TensorRef memory = client_.make_tensor(std::span(&size, 1), DType::uint8);
        return tensor::Block{memory.mutable_data(), memory.owner()};
    });
    std::map<std::string, TensorRef> tensors;
    for (const auto& [name, member] : set.manifest)
        tensors.emplace_hint(tensors.end(), name, tensor::member_of(set, member)->tensor());
    return tensors;
}

Published NamedTensors::put_file(std::string_view name, const std::string& path, const PutOptions& options) const {
    const auto file = client::publication_of_file(*client_.core_, path);
    PutOptions all = options;
    all.metadata.insert(file.metadata.begin(), file.metadata.end());
    return put_content(name, file, all);
}

Published NamedTensors::put_content(std::string_view name, const client::Publication& content,
                                    const PutOptions& options) const {
    client::SlotOf<published> result;
    Receipt receipt;
    const TensorRef* const tensor = content.tensor != nullptr ? &content.tensor->tensor() : nullptr;
    client_.call_into("tensor.put", PutArguments(name, options, tensor, &content.set), result, &receipt);
    Published made = std::move(result.value);
    made.copied += content.copied + receipt.bytes_copied;
    if (!receipt.transports.empty()) made.transport = receipt.transports.front().name;
    return made;
}

NamedTensor NamedTensors::get(std::string_view name, std::optional<std::uint64_t> version) const {
    ContentSlot result;
    repeating().call_into("tensor.get",
                          detail::ArgumentsOf(named("name", name), named("version", version), named("form", "blocks")),
                          result);
    return NamedTensor(std::move(result.content));
}

NamedTensor NamedTensors::get(std::string_view name, const NamedTensor& previous) const {
    tensor::TensorMap known = previous.content().blocks;
    std::erase_if(known, [](const auto& block) {
        return !local::is_as_received(block.second->tensor().data(), block.second->bytes());
    });
    std::vector<std::string> ids;
    for (const auto& [id, data] : known)
        ids.push_back(id);
    ContentSlot result(std::move(known));
    repeating().call_into(
        "tensor.get", detail::ArgumentsOf(named("name", name), named("known", ids), named("form", "blocks")), result);
    return NamedTensor(std::move(result.content));
}

NamedTensor NamedTensors::get(std::string_view name, const std::vector<std::string>& members,
                              std::optional<std::uint64_t> version) const {
    ContentSlot result;
    repeating().call_into("tensor.get",
                          detail::ArgumentsOf(named("name", name), named("members", members), named("version", version),
                                              named("form", "blocks")),
                          result);
    return NamedTensor(std::move(result.content));
}

/// Of a set and of a tensor. Older servers do not send it by itself: then it is empty.
std::map<std::string, std::string> NamedTensors::fetch_metadata(std::string_view name, std::uint64_t version) const {
    client::SlotOf<metadata_in> found;
    try {
        repeating().call_into(
            "tensor.get",
            detail::ArgumentsOf(named("name", name), named("version", version), named("form", "metadata")), found);
    } catch (const InvalidParams& error) {
        if (client::details_of(error).parameter != "form") throw;
    }
    return std::move(found.value);
}

std::vector<NamedTensorInfo> NamedTensors::list(std::string_view prefix) const {
    std::vector<NamedTensorInfo> all;
    client::SlotOf<page_of> page;
    do {
        const std::string cursor = page.value.cursor;
        repeating().call_into(
            "tensor.list", detail::ArgumentsOf(named("prefix", prefix), named("cursor", cursor), named("limit", 1000)),
            page);
        std::move(page.value.list.begin(), page.value.list.end(), std::back_inserter(all));
    } while (!page.value.cursor.empty());
    return all;
}

bool NamedTensors::remove(std::string_view name) const {
    try {
        client::SlotOf<version_in> result;
        client_.call_into("tensor.delete", detail::ArgumentsOf(named("name", name)), result);
        return true;
    } catch (const UnknownOrExpired&) {
        return false;
    }
}

std::optional<std::uint64_t> NamedTensors::watch(std::string_view name, std::uint64_t after,
                                                 milliseconds timeout) const {
    std::optional<std::uint64_t> found;
    client::wait_in_steps(later(real_clock().now(), timeout), client::kLongestWait, [&](milliseconds step) {
        CallOptions options = repeating().options_;
        options.timeout = step + client::kAnswerTime;
        client::SlotOf<version_in> result;
        client_.with(options).call_into(
            "tensor.watch",
            detail::ArgumentsOf(named("name", name), named("after_version", after), named("timeout_ms", step.count())),
            result);
        if (result.value != after) found = result.value;
        return found.has_value();
    });
    return found;
}

}  // namespace shared_tensor
