// The login page: records the login, so that typed values are restored after it.
import { passLogin } from "./drafts.js";

passLogin();
