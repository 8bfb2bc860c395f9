// The types and the library have the same exports, and each class has the members that its types declare. `library` is a
// copy of shared_tensor.js without the types beside it, so the compiler reads the code.

import * as library from "./library/shared_tensor.js";
import * as types from "./shared_tensor.js";

type Same<A, B> = [A, B] extends [B, A] ? true : { missing: Exclude<A, B>; surplus: Exclude<B, A> };
type Members<Class> = Class extends { prototype: infer Instance } ? keyof Instance : never;
type Lacking<Name extends keyof typeof types> = Exclude<Members<(typeof types)[Name]>, Members<(typeof library)[Name]>>;

export const exported: Same<keyof typeof types, keyof typeof library> = true;
export const lacking: { [Name in keyof typeof types]?: Lacking<Name> extends never ? true : Lacking<Name> } = {
  Client: true, SharedTensorError: true, Socket: true, StreamCall: true, Task: true, Tensor: true,
};
