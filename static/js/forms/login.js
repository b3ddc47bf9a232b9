// The login pages: record the login, so that typed values are restored after it, and offer passkeys.
import { passLogin } from "./drafts.js";
import * as passkeys from "./passkeys.js";

passLogin();
passkeys.start();
