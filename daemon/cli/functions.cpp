#include <string>
#include <utility>

#include "cli/commands.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

const Json kNothing;

/// A JSON Schema of rpc.discover as a short type for people: "integer", "tensor?", "list of string".
std::string type_text(const Json& schema);

const Json& member(const Json& object, const char* name) {
    if (!object.is_object()) return kNothing;
    const auto found = object.find(name);
    return found == object.end() ? kNothing : *found;
}

std::string text_of(const Json& object, const char* name) {
    const Json& value = member(object, name);
    return value.is_string() ? value.get<std::string>() : std::string();
}

template <class Text>
std::string joined(const Json& list, const char* separator, Text text) {
    std::string result;
    for (const auto& element : list) {
        if (!result.empty()) result += separator;
        result += text(element);
    }
    return result;
}

/// The schema of an optional value is a choice of a type and null; the schema of a number also allows the names of NaN
/// and infinities.
std::string choice_text(const Json& choices) {
    Json others = Json::array();
    bool null = false;
    bool number = false;
    for (const auto& choice : choices) {
        const std::string type = text_of(choice, "type");
        null = null || type == "null";
        number = number || type == "number";
        if (type != "null") others.push_back(choice);
    }
    if (number) return null ? "number?" : "number";
    return joined(others, " or ", type_text) + (null ? "?" : "");
}

std::string array_text(const Json& schema) {
    if (const Json& items = member(schema, "prefixItems"); items.is_array())
        return "(" + joined(items, ", ", type_text) + ")";
    return "list of " + type_text(member(schema, "items"));
}

std::string object_text(const Json& schema) {
    if (schema.is_object() && schema.contains("x-access")) {
        const std::string type = text_of(schema, "x-object-type");
        const bool alone = text_of(schema, "x-access") == "exclusive";
        return "handle" + (type.empty() ? "" : " of " + type) + (alone ? " (exclusive)" : "");
    }
    if (const Json& properties = member(schema, "properties"); properties.is_object()) {
        std::string text;
        for (const auto& [name, type] : properties.items())
            text += (text.empty() ? "" : ", ") + name + ": " + type_text(type);
        return "{" + text + "}";
    }
    if (const Json& values = member(schema, "additionalProperties"); values.is_object())
        return "map of " + type_text(values);
    return "object";
}

/// A method of the daemon itself: listed only if its name is given.
bool is_own(const Json& method) {
    const Json& mark = member(method, "x-builtin");
    return mark.is_boolean() && mark.get<bool>();
}

std::string parameter_text(const Json& parameter) {
    const Json& schema = member(parameter, "schema");
    std::string text = text_of(parameter, "name") + ": " + type_text(schema);
    if (schema.is_object() && schema.contains("default")) return text + " = " + compact(schema.at("default"));
    const Json& required = member(parameter, "required");
    const bool may_be_missing = required.is_boolean() && !required.get<bool>() && !text.ends_with('?');
    return may_be_missing ? text + '?' : text;
}

std::string type_text(const Json& schema) {
    if (const Json& choices = member(schema, "anyOf"); choices.is_array()) return choice_text(choices);
    if (const Json& names = member(schema, "enum"); names.is_array()) return joined(names, " | ", compact);
    if (const std::string reference = text_of(schema, "$ref"); !reference.empty()) {
        return reference == "#/components/schemas/Tensor" ? "tensor" : reference;
    }
    const std::string type = text_of(schema, "type");
    if (type == "array") return array_text(schema);
    if (type == "object") return object_text(schema);
    if (type == "null") return "nothing";
    if (type == "string" && !text_of(schema, "contentEncoding").empty()) return "bytes";
    return type.empty() ? "any" : type;
}

/// "scale(x: tensor, factor: number = 2.0) -> tensor"
std::string signature(const Json& method) {
    const std::string result = type_text(member(member(method, "result"), "schema"));
    return text_of(method, "name") + "(" + joined(member(method, "params"), ", ", parameter_text) + ")" +
           (result == "nothing" ? "" : " -> " + result);
}

/// Signature and documentation of all functions of the document, or of the function `only`. Throws UsageError if that
/// function does not exist.
std::string describe_functions(const Json& document, const std::string& only) {
    std::string text;
    for (const auto& method : member(document, "methods")) {
        if (only.empty() ? is_own(method) : text_of(method, "name") != only) continue;
        if (!text.empty()) text += '\n';
        text += signature(method);
        if (const std::string summary = text_of(method, "summary"); !summary.empty()) text += "\n    " + summary;
        for (const auto& stream : member(method, "x-streams")) {
            const bool reads = text_of(stream, "flow") == "in";
            text += "\n    " + std::string(reads ? "reads " : "writes ") + text_of(stream, "name") + ": " +
                    type_text(member(stream, "schema"));
        }
        if (text_of(method, "x-execution") == "task") text += "\n    runs as a task only: submit, or call --task";
    }
    if (text.empty() && !only.empty())
        throw UsageError("the server shares no function " + only + "; `shared-tensor functions` lists its functions");
    return text.empty() ? "the server shares no function" : text;
}

/// The document without the daemon's own methods.
Json functions_only(Json document) {
    if (member(document, "methods").is_array()) {
        Json shared = Json::array();
        for (Json& method : document["methods"]) {
            if (!is_own(method)) shared.push_back(std::move(method));
        }
        document["methods"] = std::move(shared);
    }
    return document;
}

}  // namespace

int functions(const CommandLine& line) {
    const Json document = parse_answer(connect(line).discover());
    if (line.json || line.names) {
        print_list(line, functions_only(document), "methods", "name", {});
    } else {
        print_line(describe_functions(document, line.words.empty() ? "" : line.words.front()));
    }
    return kOk;
}

}  // namespace shared_tensor::cli
