import type { Sealed } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { DataKey } from "./key-cache.ts";
import { sealBroken } from "./seal-broken.ts";
import { parseToken } from "./sealed-token.ts";
import { Sealer } from "./sealer.ts";

type Place = readonly (string | number)[];

/** Seals and opens texts under the key of one person. */
interface TextSeal {
  readonly subject: string;
  seal(text: string, of: string, place: Place): Sealed;
  open(sealed: unknown, of: string, place: Place): string;
}

/** What sagas seal their state with. */
export function sagaVault({ keys, index }: PrivacyEngine) {
  return {
    forPerson: async (subject: string, tx: Queryable): Promise<TextSeal> =>
      textSeal(await keys.forSealing(index.subject(subject), tx)),
    find: async ({ $sealed }: Sealed, tx?: Queryable): Promise<TextSeal | "erased" | "sealed"> => {
      const keyId = parseToken($sealed)?.keyId;
      if (keyId === undefined) throw sealBroken();
      const key = await keys.find(keyId, tx);
      return key === "unknown" ? "sealed" : key === "erased" ? "erased" : textSeal(key);
    },
  };
}

function textSeal(key: DataKey): TextSeal {
  const sealer = (of: string): Sealer => new Sealer(key, { purpose: "saga", id: of });
  return {
    subject: key.subject,
    seal: (text, of, place) => sealer(of).sealText(text, place),
    open: (sealed, of, place) => sealer(of).openText(sealed, place),
  };
}
