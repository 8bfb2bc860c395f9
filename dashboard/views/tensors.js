import { Tensor } from "../../shared_tensor.js";
import { Table, action, bytes, freshId, h, say, section } from "../dom.js";
import { tensorField } from "../form.js";
import { tensorView } from "../result.js";
import { store } from "../store.js";

const MOST_BYTES = 64 << 20; // of a tensor that is fetched to be shown

export function tensorsView() {
  const call = (method, params) => store.call(method, params);
  const detail = h("div", { class: "result" }, h("p", { class: "none" }, "Choose a tensor to look at it."));
  const prefixId = freshId("prefix");
  const prefix = h("input", { id: prefixId, type: "search", autocomplete: "off", oninput: () => refresh() });
  const more = h("p", { class: "note" });
  const table = new Table("Named tensors and sets", [
    { title: "Name", cell: (one) => one.name },
    { title: "Version", number: true, cell: (one) => String(one.version) },
    { title: "Size", number: true, cell: (one) => bytes(one.bytes) },
    { title: "Tensors", number: true, cell: (one) => String(one.members ?? 1) },
    { title: "Published", cell: (one) => new Date(one.published_at).toLocaleString() },
    { title: "Owner", cell: (one) => one.owner },
    { title: "Actions", live: false, cell: (one) => h("span", { class: "row" },
      action("Show", () => show(one), { "aria-label": `Show ${one.name}` }),
      action("Delete", () => remove(one), { "aria-label": `Delete ${one.name}` })) },
  ], (one) => `${one.owner}\0${one.name}`, "No tensor has a name. Publish one below.");

  async function refresh() {
    const { tensors, next_cursor } = await call("tensor.list", { prefix: prefix.value, limit: 200 });
    table.update(tensors);
    more.textContent = next_cursor ? "Only the first 200 are shown: narrow the names by their beginning." : "";
  }

  async function remove({ name, owner }) {
    if (!confirm(`Delete ${name}? Readers keep what they have.`)) return;
    await call("tensor.delete", { name, owner });
    say(`${name} was deleted.`);
    await refresh();
  }

  async function show({ name, owner, members }) {
    detail.replaceChildren(members === undefined ? await view(name, owner) : memberList(name, owner, await membersOf(name, owner)));
    detail.scrollIntoView({ block: "nearest" });
  }

  /** The members of a set, without their elements: from the head of its safetensors file. */
  async function membersOf(name, owner) {
    const part = async (first, last) => {
      const headers = { Range: `bytes=${first}-${last}` };
      return (await store.client.get(`tensors/${path(name)}.safetensors${query(owner)}`, { headers })).arrayBuffer();
    };
    const length = Number(new DataView(await part(0, 7)).getBigUint64(0, true));
    const { __metadata__: _, ...members } = JSON.parse(new TextDecoder().decode(await part(8, 7 + length)));
    return Object.entries(members).map(([member, { dtype, shape }]) => ({ member, dtype, shape }));
  }

  function memberList(name, owner, rows) {
    const place = h("div", { class: "result" });
    const list = new Table(`Members of ${name}`, [
      { title: "Member", cell: (one) => one.member },
      { title: "dtype", cell: (one) => one.dtype },
      { title: "Shape", cell: (one) => `[${one.shape.join(", ")}]` },
      { title: "Actions", live: false, cell: (one) => action("Show", async () => place.replaceChildren(await view(`${name}/${one.member}`, owner)),
        { "aria-label": `Show ${name}/${one.member}` }) },
    ], (one) => one.member, "The set is empty.");
    list.update(rows);
    return h("div", { class: "result" }, h("h3", {}, name), h("div", { class: "row" }, fileLink(name, owner, "safetensors")), list.element, place);
  }

  async function view(name, owner) {
    const head = await store.client.get(`tensors/${path(name)}.raw${query(owner)}`, { method: "HEAD" });
    const size = Number(head.headers.get("Content-Length"));
    const shape = head.headers.get("Shared-Tensor-Shape");
    const dtype = head.headers.get("Shared-Tensor-Dtype");
    if (size > MOST_BYTES)
      return h("div", {}, h("h3", {}, name), h("p", {}, `${dtype} ${shape}, ${bytes(size)}: too large to be shown here`),
        h("div", { class: "row" }, fileLink(name, owner, "npy"), fileLink(name, owner, "safetensors")));
    const response = await store.client.get(`tensors/${path(name)}.raw${query(owner)}`);
    const tensor = Tensor.fromBytes(new Uint8Array(await response.arrayBuffer()), JSON.parse(shape), dtype);
    return tensorView(tensor, name, [fileLink(name, owner, "safetensors")]);
  }

  /** A download with the page's token; the daemon writes the file. */
  function fileLink(name, owner, form) {
    return action(`Download .${form}`, async () => {
      const response = await store.client.get(`tensors/${path(name)}.${form}${query(owner)}`);
      const url = URL.createObjectURL(await response.blob());
      h("a", { href: url, download: `${name.replaceAll("/", "_")}.${form}` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    });
  }

  return {
    elements: [
      section("Named tensors", h("div", { class: "row middle" }, h("label", { for: prefixId }, "Names that begin with"), prefix), table.element, more),
      section("Tensor", detail),
      section("Publish", publishForm(refresh)),
    ],
    update: () => refresh().catch((error) => say(error.message, "bad")),
  };
}

const path = (name) => name.split("/").map(encodeURIComponent).join("/");
const query = (owner) => (owner === undefined ? "" : "?owner=" + encodeURIComponent(owner));

function publishForm(published) {
  const id = freshId("name");
  const name = h("input", { id, type: "text", autocomplete: "off" });
  const field = tensorField("tensor", true);
  return h("form", { novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    try {
      if (name.value === "") throw new Error("give the tensor a name");
      const { version } = await store.client.putTensor(name.value, await field.read());
      say(`${name.value} was published as version ${version}.`);
      await published();
    } catch (error) {
      say(error.message, "bad");
    }
  } }, h("div", { class: "field" }, h("label", { for: id }, "Name"), name), field.element, h("div", {}, h("button", { type: "submit", class: "primary" }, "Publish")));
}
