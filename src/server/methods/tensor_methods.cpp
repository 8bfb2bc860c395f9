#include <algorithm>
#include <array>
#include <new>
#include <system_error>
#include <utility>

#include <shared_tensor/codecs.hpp>

#include "base/concurrency/clock.hpp"
#include "protocol/codec/value.hpp"
#include "server/methods/methods.hpp"

namespace shared_tensor::server {

namespace {

using json_rpc::Json;
using runtime::make_outcome;
using runtime::Named;
using runtime::NamedPointer;
using runtime::TensorStore;

using Text = std::optional<std::string>;
using OneTensor = std::optional<TensorParameter>;
using SeveralTensors = std::optional<std::map<std::string, TensorParameter>>;
using MaybeVersion = std::optional<Version>;
using Words = std::optional<std::vector<std::string>>;
using Metadata = std::optional<std::map<std::string, std::string>>;

constexpr std::array<std::string_view, 3> kForms = {"tensors", "blocks", "metadata"};
using Form = Word<kForms>;

std::optional<std::uint64_t> number_of(const MaybeVersion& version) {
    if (!version) return std::nullopt;
    return static_cast<std::uint64_t>(version->value);
}

/// A repeated request would publish or delete again: keys are kept for the runs of functions only.
void check_no_key(const BuiltinCall& call) {
    if (!call.to.meta.idempotency_key.empty())
        reject("idempotency_key", "no key: if_version makes a repeated request harmless", "a key");
}

/// Uses the Codec of maps, because a key may begin with '$': the Codec escapes such keys.
void write_metadata(ValueWriter writer, const NamedMetadata& metadata) {
    Codec<std::map<std::string, std::string>>::write(writer, {metadata.begin(), metadata.end()});
}

/// Only an admin may name another owner. For all other callers another owner has no tensors.
const std::string& owner_of(const BuiltinCall& call, const std::optional<std::string>& named) {
    static const std::string kNobody;
    if (!named || *named == call.principal.name) return call.principal.name;
    return call.principal.admin ? *named : kNobody;
}

/// The content that tensor.put received.
struct Sent {
    codec::TensorPointer tensor;               ///< one tensor
    std::optional<tensor::TensorMap> tensors;  ///< or a set of separate tensors
    std::optional<tensor::Manifest> manifest;  ///< or a set in `data`
    codec::TensorPointer data;
    NamedMetadata metadata;

    std::uint64_t bytes() const {
        if (tensor != nullptr) return tensor->bytes();
        if (data != nullptr) return data->bytes();
        std::uint64_t sum = 0;
        for (const auto& [name, one] : *tensors)
            sum += one->bytes();
        return sum;
    }
};

/// The blocks of a set, with the members that were asked for (or all members) and no more of the memory.
std::vector<NamedBlock> chosen(const Words& members, const NamedValue& value) {
    if (!members) return value.blocks;
    std::vector<tensor::Manifest> some(value.blocks.size());
    for (std::size_t i = 0; i < members->size(); ++i) {
        bool found = false;
        for (std::size_t j = 0; j < some.size() && !found; ++j) {
            const tensor::Manifest& all = value.blocks[j].set.manifest;
            const auto member = all.find((*members)[i]);
            found = member != all.end();
            if (found) some[j].insert(*member);
        }
        if (!found) reject("members[" + std::to_string(i) + ']', "the name of a member of the set", "another name");
    }
    std::vector<NamedBlock> blocks;
    for (std::size_t j = 0; j < some.size(); ++j) {
        if (!some[j].empty()) blocks.push_back({{}, tensor::part_of(value.blocks[j].set, std::move(some[j]))});
    }
    return blocks;
}

/// Writes a result into a Value. Tensors are handles already.
class Answer {
public:
    Answer() : sink_(value_, port_), root_(sink_, sink_.root()) { root_.object(); }

    ValueWriter member(std::string_view name) { return root_.member(name); }
    void tensor(ValueSink::Node node, codec::TensorPointer tensor) {
        *static_cast<Json*>(node) = placeholder(value_, std::move(tensor));
    }
    void tensor(std::string_view name, codec::TensorPointer handle) {
        tensor(sink_.member(sink_.root(), name), std::move(handle));
    }
    void tensors(std::string_view name, const std::vector<NamedBlock>& blocks) {
        const ValueSink::Node members = sink_.member(sink_.root(), name);
        sink_.object(members);
        for (const NamedBlock& block : blocks) {
            for (const auto& [member, place] : block.set.manifest)
                tensor(sink_.member(members, member), tensor::member_of(block.set, place));
        }
    }
    /// The reader has the data of the blocks in `known`.
    void blocks(std::string_view name, const std::vector<NamedBlock>& blocks, const Words& known) {
        const ValueSink::Node list = sink_.member(sink_.root(), name);
        sink_.array(list, blocks.size());
        for (const NamedBlock& one : blocks) {
            const ValueSink::Node node = sink_.append(list);
            ValueWriter block(sink_, node);
            block.object();
            if (!one.id.empty()) block.member("id").string(one.id);
            tensor::write_manifest(block.member("manifest"), one.set.manifest);
            if (!known || std::find(known->begin(), known->end(), one.id) == known->end())
                tensor(sink_.member(node, "data"), one.set.data);
        }
    }
    codec::Value take() { return std::move(value_); }

private:
    codec::Value value_;
    codec::TensorPort port_;
    codec::JsonSink sink_;
    ValueWriter root_;
};

Json to_json(const Named& named) {
    const NamedValue& value = NamedTensors::value_of(named);
    Json json{{"name", named.name},
              {"owner", named.owner},
              {"version", named.version},
              {"bytes", value.data_bytes()},
              {"published_at", iso8601(named.published_at)}};
    if (value.is_set()) {
        json["members"] = value.size();
    } else {
        json["dtype"] = name_of(value.tensor->tensor().dtype());
        json["shape"] = tensor::shape_of(value.tensor);
    }
    return json;
}

Json named_schema() {
    return schema::object({{"name", "string"},
                           {"owner", "string"},
                           {"version", "integer"},
                           {"bytes", "integer"},
                           {"published_at", "string"},
                           {"members?", "integer"},
                           {"dtype?", "string"},
                           {"shape?", schema::list_of("integer")}});
}

class TensorMethods {
public:
    explicit TensorMethods(Services& all) : all_(all) {}

    Json put(const BuiltinCall& call, const std::string& name, OneTensor tensor, SeveralTensors tensors,
             const std::optional<Unread>& manifest, OneTensor data, Metadata metadata, const MaybeVersion& if_version,
             const MaybeVersion& base, const std::optional<NewVersion>& new_version) const {
        check_no_key(call);
        NamedTensors::check_name(name);
        if (base && if_version) reject("if_version", "nothing beside base, which must be the version now", "a version");
        Sent sent = checked(std::move(tensor), std::move(tensors), manifest, std::move(data), std::move(metadata));
        const std::string& owner = call.principal.name;
        NamedTensors::Put what{owner, name, sent.bytes()};
        what.wanted.if_version = number_of(base ? base : if_version);
        if (new_version) what.wanted.version = static_cast<std::uint64_t>(new_version->value);
        what.has_base = base.has_value();
        const NamedTensors::Made made = all_.names.put(what, [&] {
            NamedTensors::Placed placed = place(owner, sent);
            if (call.to.memory.failed()) throw Rejected(runtime::memory_failed());
            return placed;
        });
        const std::uint64_t bytes = NamedTensors::value_of(*made.named).data_bytes();
        return {{"name", name}, {"version", made.named->version}, {"bytes", bytes}, {"copied", made.copied}};
    }

    Outcome get(const BuiltinCall& call, const std::string& name, const MaybeVersion& version, const Words& members,
                const std::optional<Form>& form, const Words& known, const Text& owner) const {
        const auto address = NamedTensors::parse_address(name);
        const auto named = all_.names.store().find(owner_of(call, owner), address.name);
        if (named == nullptr) throw unknown(name);
        if (version && number_of(version) != named->version) throw unknown(name, named);
        const NamedValue& value = NamedTensors::value_of(*named);
        if ((!value.is_set() || !address.member.empty()) && members)
            reject("members", "nothing: this is one tensor", "some");
        Answer result;
        result.member("name").string(name);
        result.member("version").unsigned_integer(named->version);
        if (!value.metadata.empty()) write_metadata(result.member("metadata"), value.metadata);
        codec::TensorPointer member = address.member.empty() ? nullptr : value.member(address.member);
        if (!address.member.empty() && member == nullptr) throw unknown(name, named);
        if (form && form->text == "metadata") return make_outcome(result.take());
        if (member != nullptr) {
            result.tensor("tensor", std::move(member));
        } else if (!value.is_set()) {
            result.tensor("tensor", value.tensor);
        } else if (!form || form->text == "tensors") {
            result.tensors("tensors", chosen(members, value));
        } else {
            result.blocks("blocks", chosen(members, value), known);
        }
        return make_outcome(result.take());
    }

    Json list(const BuiltinCall& call, const Text& prefix, const Text& cursor,
              const std::optional<PageSize>& limit) const {
        runtime::NamedFilter filter;
        filter.owner = owner_filter(call.principal);
        filter.prefix = prefix.value_or("");
        filter.cursor = cursor.value_or("");
        if (limit) filter.limit = static_cast<std::size_t>(limit->value);
        const runtime::NamedPage page = all_.names.store().list(filter);
        Json list = Json::array();
        for (const NamedPointer& named : page.list)
            list.push_back(to_json(*named));
        Json json{{"tensors", std::move(list)}};
        if (!page.next_cursor.empty()) json["next_cursor"] = page.next_cursor;
        return json;
    }

    Json remove(const BuiltinCall& call, const std::string& name, const MaybeVersion& if_version,
                const Text& owner) const {
        check_no_key(call);
        const auto version = number_of(if_version);
        auto removed = all_.names.remove(owner_of(call, owner), name, version);
        if (const auto* rejected = std::get_if<TensorStore::Rejected>(&removed))
            throw Rejected(version_error(*rejected, {version, std::nullopt}));
        const auto& gone = std::get<NamedPointer>(removed);
        if (gone == nullptr) throw unknown(name);
        return {{"name", name}, {"version", gone->version}};
    }

    /// Does not wait if an earlier item of the batch found that the client is gone.
    Json watch(const BuiltinCall& call, const std::string& name, const MaybeVersion& after_version,
               const std::optional<Milliseconds>& timeout_ms, const Text& owner) const {
        NamedTensors::check_name(name);
        const std::uint64_t after = number_of(after_version).value_or(0);
        const SteadyTime now = real_clock().now();
        SteadyTime deadline = call.client.known_gone() ? now : call.wait_end;
        if (timeout_ms) deadline = std::min(deadline, now + std::chrono::milliseconds(timeout_ms->value));
        const auto named =
            all_.names.store().wait(owner_of(call, owner), name, after, deadline, [&] { return call.client.gone(); });
        if (named == nullptr && after > 0) throw unknown(name);
        const std::uint64_t version = named != nullptr ? named->version : 0;
        if (version == after && all_.names.store().closed()) throw Rejected(json_rpc::shutting_down());
        return {{"name", name}, {"version", version}, {"changed", version != after}};
    }

private:
    Sent checked(OneTensor tensor, SeveralTensors tensors, const std::optional<Unread>& manifest, OneTensor data,
                 Metadata metadata) const {
        if (int{tensor.has_value()} + int{tensors.has_value()} + int{manifest.has_value()} != 1 ||
            manifest.has_value() != data.has_value())
            reject("tensor", "exactly one of tensor, tensors, or manifest with data", "another choice");
        Sent sent;
        if (tensor) sent.tensor = std::move(tensor->tensor);
        if (tensors) {
            sent.tensors.emplace();
            for (auto& [name, one] : *tensors)
                sent.tensors->emplace(name, std::move(one.tensor));
            NamedTensors::check_content("tensors", *sent.tensors, {});
        }
        if (manifest) {
            sent.data = std::move(data->tensor);
            if (!tensor::is_bytes(sent.data)) reject("data", "uint8 tensor of one dimension", "another tensor");
            sent.manifest = tensor::read_manifest(manifest->reader, sent.data->bytes(), NamedTensors::kMaxMembers);
            NamedTensors::check_content("manifest", *sent.manifest, {});
        }
        if (metadata) {
            for (auto& [key, text] : *metadata)
                sent.metadata.emplace(key, std::move(text));
            NamedTensors::check_content("metadata", tensor::TensorMap(), sent.metadata);
        }
        return sent;
    }

    NamedTensors::Placed place(const std::string& owner, Sent& sent) const {
        NamedTensors::Placed placed = sent.tensor != nullptr ? all_.names.place(owner, sent.tensor)
                                      : sent.tensors         ? all_.names.place(owner, *sent.tensors)
                                                     : all_.names.place(owner, std::move(*sent.manifest), sent.data);
        placed.value->metadata = std::move(sent.metadata);
        return placed;
    }

    Rejected unknown(std::string_view name, const NamedPointer& now = nullptr) const {
        json_rpc::Error error = json_rpc::unknown_or_expired("tensor", all_.epoch, name);
        if (now != nullptr) error.data["version"] = now->version;
        return Rejected(std::move(error));
    }

    Services& all_;
};

}  // namespace

void add_tensor_methods(Builtins& builtins, Services& all) {
    using schema::object;
    const auto methods = std::make_shared<const TensorMethods>(all);
    builtins.add({"tensor.put", "Publishes a tensor, or a set of them, under a name.",
                  object({{"name", "string"}, {"version", "integer"}, {"bytes", "integer"}, {"copied", "integer"}})},
                 {"name", "tensor", "tensors", "manifest", "data", "metadata", "if_version", "base", "version"},
                 member(methods, &TensorMethods::put));
    builtins.add(
        {"tensor.get", "The tensor or the set of a name.",
         object({{"name", "string"},
                 {"version", "integer"},
                 {"metadata?", schema::map_of("string")},
                 {"tensor?", schema::tensor()},
                 {"tensors?", schema::map_of(schema::tensor())},
                 {"blocks?",
                  schema::list_of(object({{"id?", "string"}, {"manifest", "object"}, {"data?", schema::tensor()}}))}})},
        {"name", "version", "members", "form", "known", "owner"}, member(methods, &TensorMethods::get));
    builtins.add({"tensor.list", "Named tensors and sets, by name.",
                  object({{"tensors", schema::list_of(named_schema())}, {"next_cursor?", "string"}})},
                 {"prefix", "cursor", "limit"}, member(methods, &TensorMethods::list));
    builtins.add({"tensor.delete", "Takes a name away; its readers keep their tensors.",
                  object({{"name", "string"}, {"version", "integer"}})},
                 {"name", "if_version", "owner"}, member(methods, &TensorMethods::remove));
    builtins.add(
        {"tensor.watch", "Waits for another version than after_version.",
         object({{"name", "string"}, {"version", "integer"}, {"changed", "boolean"}}), Builtins::Takes::a_wait},
        {"name", "after_version", "timeout_ms", "owner"}, member(methods, &TensorMethods::watch));
}

}  // namespace shared_tensor::server
