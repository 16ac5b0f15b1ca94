r"""`tokens` converts an answer in words to a list of tokens, equal for the same answer in different forms.

It applies SQuAD's rules (lower case, no punctuation, no articles) and adds what they lack: NFKC, accents, Unicode
punctuation, one token per CJK character, joined initials ("J. R. R." is "JRR"), signs that distinguish names ("C#",
"C++", "A+"), and unwrapping of \text{...} and bold. A date is one token, as is a number with its unit (`qa_values`).
Chinese answers get one script, and numerals as digits; their names are compared without what only says what they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from arpo_env.grading.answer_text import unwrap
from arpo_env.grading.math_values import read_words
from arpo_env.grading.qa_values import UNITS, mark_dates, mark_quantities, spelled_prefixes, with_ordinals

# Chinese answers: one script, numerals as digits, and names without what only says what they are.

# the official simplification of the common characters
_TRADITIONAL = (
    "丟並乾亂亞佈佔併來侖侶侷係俠倆倉個們倖倫偉側偵偽傑傘備傢傭傳債傷傾僅僑僕僥僱價儀億儈儉儘償優儲兇兌兒內兩冊冪凍凜"
    "凱別刪則剋剎剛剝創剷劃劇劉劊劍劑勁動務勛勝勞勢勳勵勸勻匯區協卹卻厭厲參叢吳吶呂員唸問啞啟喚喪喫喬單喲嗆嗎嗚嘆嘔嘗"
    "嘩嘯噓噴噸噹嚇嚐嚥嚨嚮嚴囂囌囑囪國圍園圓圖團執堅堯報場塊塗塢塵塹墊墜墮墳墾壇壓壘壞壟壩壯壺壽夠夢夥夾奧奪奮妝姦娛"
    "婁婦媽嬌嬰嬸孃孫學孿宮寢實寧審寫寬寵寶將專尋對導屆屍屜屢層屬岡島峽崑崗崙嶄嶺嶼嶽巒巖帥師帳帶幀幟幣幫幹幾庫廁廂廄"
    "廈廚廟廠廢廣廬廳弔張強彆彈彌彎彙彥彫彿後徑從復徵徹恆恥悅悶悽惡惱愛慄態慘慚慣慫慮慶慼慾憂憊憐憑憚憤憫憲憶懇應懲懶"
    "懷懸懼懾戀戰戲戶拋挾捨捱捲掃掄掙掛採揀揚換揮損搖搗搶摟摯摺摻撈撐撓撥撫撲撻撾撿擁擄擇擊擋擔據擠擬擰擱擲擴擺擻擾攆"
    "攏攔攙攜攝攣攤攪攬敗敘敵數斂斃斬斷於昇時晉晝暈暢暫曆曉曠曬書會朮東枴柵桿條棄棗棟棧棲楊楓業極榦榮構槍槓槳樁樂樑樓"
    "標樞樣樸樹橋機橢橫檔檢檯檸檻櫃櫥櫻欄權欽歎歐歡歲歷歸殘殲殺殼毀毆氈氣氫氾汎汙決沒沖況洩洶涼淒淚淨淪淵淺渙減渦測渾"
    "湊湧湯準溝溫溼滄滅滌滬滯滲滷滾滿漁漢漣漬漲漸漿潑潔潛潤潰澀澆澗澤澱濁濃濕濘濛濟濤濫濰濱濺濾瀉瀋瀕瀝瀰瀾灑灘灣灤災"
    "為烏無煉煙煥煩熒熱熾燈燒燙營燦燬燭燴燻燼爍爐爛爭爺爾牆牽犢犧狀狹狽猙猶獄獅獎獨獰獲獵獸獺獻現琺瑣瑤瑩瑪環瓊甕產甦"
    "畝畢畫異當疇疊痙痠瘋瘍瘓瘡瘧療癒癟癡癢癥癬癱發皚皺盃盜盞盡監盤盧盪眾睏睜瞞矇矚矯硃硯碩確碼磚礎礙礦礫礬祕祿禍禦禮"
    "禱禿稅稈稜種稱穀積穎穢穩穫窩窪窮窯窺竄竅竊競筆筍箇箋節範築篩簍簑簡簽簾籃籌籠籤籬籮籲粵糞糧糰糾紀約紅紉紋納紐純紗"
    "紙級紛紡紮細紳紹終絃組絆結絕絛絞絡絢給絨統絲絹綁綏綑經綜綠綢維綱網綴綵綸綻綽綿緊緒緘線緝緞締緣編緩緬緯練緻縛縣縫"
    "縮縱縴縷總績繃織繕繞繡繩繪繫繭繳繹繼續纏纓纔纖纜缽罈罰罵罷羅羨義習翹聖聞聯聰聲聳聶職聽聾肅脅脈脣脩脫脹腎腦腫腳腸"
    "膚膠膩膽膿臉臍臘臟臥臨臺與興舉舊艙艦艱艷茲荊莊莖莢華菸萊萬葉葦葷蒐蒼蓆蓋蓮蔔蔣蔥蔭蕩蕪蕭薊薑薔薦薩薹藍藝藥藹蘆蘇"
    "蘊蘋蘭蘿處虛虜號虧蛻蝕蝦蝨蝸螞螢蟬蟲蟻蠅蠍蠟蠱蠶蠻術衛衝補裝裡製複褲襖襪襬襯襲見規覓視親覺覽觀觸訂訃計訊討訓訖託"
    "記訛訝訟訣訪設許訴診註証詐評詛詞詠詢詣試詩詫詭話該詳誅誇誌認誕誘語誠誡誣誤誦誨說誰課誹誼調諄談請諒論諜諧諮諱諷諸"
    "諺諾謀謂謄謊謎謗謙講謝謠謬謹譁證譏識譚譜譟譯議譴護譽讀變讒讓讚豈豎豐豔豬貓貝貞負財貢貧貨販貪貫責貯貳貴貶買貸費貼"
    "貿賀賂賃賄資賈賊賒賓賜賞賠賢賣賤賦質賬賭賴賺購賽贅贈贊贍贏贓贖贛趕趙趨跡踐踴蹟蹤躊躍軀車軋軌軍軒軟軸較載輓輔輕輛"
    "輝輥輩輪輯輸輻輾輿轄轅轉轍轎轟辦辭辮辯農迴這連週進遊運過達違遙遜遞遠適遲遷選遺遼邁還邊邏郵鄉鄒鄧鄭鄰醜醞醣醫醬釀"
    "釁釋釐釘針釣釦釩鈉鈍鈔鈕鈞鈣鈴鈾鉀鉅鉑鉗鉚鉛鉤鉸鉻銀銅銑銘銜銳銷銻鋁鋅鋇鋒鋤鋪鋸鋼錄錐錘錠錢錦錨錫錯錳錶鍊鍋鍍鍛"
    "鍬鍵鍾鎂鎊鎖鎚鎢鎬鎮鎳鏈鏟鏡鏽鐘鐮鐳鐵鑄鑑鑒鑰鑲鑷鑼鑽鑿長門閃閉開閏閑閒間閘閡閣閤閥閨閩閱閻闆闊闌闖關闡闢陝陞陣"
    "陰陳陸陽隊階隕際隨險隱隴隸隻雖雙雛雜雞離難雲電霑霧靈靜鞏鞦韆韋韌韓韻響頁頂頃項順須頌預頑頒頓頗領頤頭頰頸頹頻顆題"
    "額顏願顛類顧顫顯顱風颱颳飄飛飢飯飲飼飽飾餃餅養餌餒餓餘餞餡館餵餾饅饑饒饞馬馭馮馱馳馴駁駐駒駕駛駝駭駱駿騁騎騙騰騷"
    "騾驅驕驗驚驟驢骯髒體髮鬆鬍鬚鬥鬧鬨鬱魚魯鮑鮮鯉鯨鰓鱉鱗鳥鳳鳴鴉鴕鴛鴦鴨鴻鴿鵑鵝鵬鵲鶴鷗鷹鹵鹹鹼鹽麗麥麴麵麼黃點黨"
    "黴鼕齊齋齒齡齣齧齲龍龐龔龜"
)
_SIMPLIFIED = (
    "丢并干乱亚布占并来仑侣局系侠俩仓个们幸伦伟侧侦伪杰伞备家佣传债伤倾仅侨仆侥雇价仪亿侩俭尽偿优储凶兑儿内两册幂冻凛"
    "凯别删则克刹刚剥创铲划剧刘刽剑剂劲动务勋胜劳势勋励劝匀汇区协恤却厌厉参丛吴呐吕员念问哑启唤丧吃乔单哟呛吗呜叹呕尝"
    "哗啸嘘喷吨当吓尝咽咙向严嚣苏嘱囱国围园圆图团执坚尧报场块涂坞尘堑垫坠堕坟垦坛压垒坏垄坝壮壶寿够梦伙夹奥夺奋妆奸娱"
    "娄妇妈娇婴婶娘孙学孪宫寝实宁审写宽宠宝将专寻对导届尸屉屡层属冈岛峡昆岗仑崭岭屿岳峦岩帅师帐带帧帜币帮干几库厕厢厩"
    "厦厨庙厂废广庐厅吊张强别弹弥弯汇彦雕佛后径从复征彻恒耻悦闷凄恶恼爱栗态惨惭惯怂虑庆戚欲忧惫怜凭惮愤悯宪忆恳应惩懒"
    "怀悬惧慑恋战戏户抛挟舍挨卷扫抡挣挂采拣扬换挥损摇捣抢搂挚折掺捞撑挠拨抚扑挞挝捡拥掳择击挡担据挤拟拧搁掷扩摆擞扰撵"
    "拢拦搀携摄挛摊搅揽败叙敌数敛毙斩断于升时晋昼晕畅暂历晓旷晒书会术东拐栅杆条弃枣栋栈栖杨枫业极干荣构枪杠桨桩乐梁楼"
    "标枢样朴树桥机椭横档检台柠槛柜橱樱栏权钦叹欧欢岁历归残歼杀壳毁殴毡气氢泛泛污决没冲况泄汹凉凄泪净沦渊浅涣减涡测浑"
    "凑涌汤准沟温湿沧灭涤沪滞渗卤滚满渔汉涟渍涨渐浆泼洁潜润溃涩浇涧泽淀浊浓湿泞蒙济涛滥潍滨溅滤泻沈濒沥弥澜洒滩湾滦灾"
    "为乌无炼烟焕烦荧热炽灯烧烫营灿毁烛烩熏烬烁炉烂争爷尔墙牵犊牺状狭狈狰犹狱狮奖独狞获猎兽獭献现珐琐瑶莹玛环琼瓮产苏"
    "亩毕画异当畴叠痉酸疯疡痪疮疟疗愈瘪痴痒症癣瘫发皑皱杯盗盏尽监盘卢荡众困睁瞒蒙瞩矫朱砚硕确码砖础碍矿砾矾秘禄祸御礼"
    "祷秃税秆棱种称谷积颖秽稳获窝洼穷窑窥窜窍窃竞笔笋个笺节范筑筛篓蓑简签帘篮筹笼签篱箩吁粤粪粮团纠纪约红纫纹纳纽纯纱"
    "纸级纷纺扎细绅绍终弦组绊结绝绦绞络绚给绒统丝绢绑绥捆经综绿绸维纲网缀彩纶绽绰绵紧绪缄线缉缎缔缘编缓缅纬练致缚县缝"
    "缩纵纤缕总绩绷织缮绕绣绳绘系茧缴绎继续缠缨才纤缆钵坛罚骂罢罗羡义习翘圣闻联聪声耸聂职听聋肃胁脉唇修脱胀肾脑肿脚肠"
    "肤胶腻胆脓脸脐腊脏卧临台与兴举旧舱舰艰艳兹荆庄茎荚华烟莱万叶苇荤搜苍席盖莲卜蒋葱荫荡芜萧蓟姜蔷荐萨苔蓝艺药蔼芦苏"
    "蕴苹兰萝处虚虏号亏蜕蚀虾虱蜗蚂萤蝉虫蚁蝇蝎蜡蛊蚕蛮术卫冲补装里制复裤袄袜摆衬袭见规觅视亲觉览观触订讣计讯讨训讫托"
    "记讹讶讼诀访设许诉诊注证诈评诅词咏询诣试诗诧诡话该详诛夸志认诞诱语诚诫诬误诵诲说谁课诽谊调谆谈请谅论谍谐咨讳讽诸"
    "谚诺谋谓誊谎谜谤谦讲谢谣谬谨哗证讥识谭谱噪译议谴护誉读变谗让赞岂竖丰艳猪猫贝贞负财贡贫货贩贪贯责贮贰贵贬买贷费贴"
    "贸贺赂赁贿资贾贼赊宾赐赏赔贤卖贱赋质账赌赖赚购赛赘赠赞赡赢赃赎赣赶赵趋迹践踊迹踪踌跃躯车轧轨军轩软轴较载挽辅轻辆"
    "辉辊辈轮辑输辐辗舆辖辕转辙轿轰办辞辫辩农回这连周进游运过达违遥逊递远适迟迁选遗辽迈还边逻邮乡邹邓郑邻丑酝糖医酱酿"
    "衅释厘钉针钓扣钒钠钝钞钮钧钙铃铀钾巨铂钳铆铅钩铰铬银铜铣铭衔锐销锑铝锌钡锋锄铺锯钢录锥锤锭钱锦锚锡错锰表炼锅镀锻"
    "锹键钟镁镑锁锤钨镐镇镍链铲镜锈钟镰镭铁铸鉴鉴钥镶镊锣钻凿长门闪闭开闰闲闲间闸阂阁合阀闺闽阅阎板阔阑闯关阐辟陕升阵"
    "阴陈陆阳队阶陨际随险隐陇隶只虽双雏杂鸡离难云电沾雾灵静巩秋千韦韧韩韵响页顶顷项顺须颂预顽颁顿颇领颐头颊颈颓频颗题"
    "额颜愿颠类顾颤显颅风台刮飘飞饥饭饮饲饱饰饺饼养饵馁饿余饯馅馆喂馏馒饥饶馋马驭冯驮驰驯驳驻驹驾驶驼骇骆骏骋骑骗腾骚"
    "骡驱骄验惊骤驴肮脏体发松胡须斗闹哄郁鱼鲁鲍鲜鲤鲸鳃鳖鳞鸟凤鸣鸦鸵鸳鸯鸭鸿鸽鹃鹅鹏鹊鹤鸥鹰卤咸碱盐丽麦曲面么黄点党"
    "霉冬齐斋齿龄出啮龋龙庞龚龟"
)
_SCRIPT = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
_NUMERAL = "〇零一二三四五六七八九十百千万亿两"
_MEASURE = "个部名位座条次本种家所集首支枚场张届篇幢款台辆艘架颗项件步卷期级层门栋"
_COUNTED = f"年月日号岁人天世点时分比届季{_MEASURE}"
_UNIT_NAMES = "|".join(sorted((name for name in UNITS if name > "\u4e00"), key=len, reverse=True))
_CHINESE_DIGIT = "[零〇一二三四五六七八九]"
_WORDS = re.compile(
    rf"(?:(?<=分之)|(?<=[第比]))[{_NUMERAL}]{{1,12}}(?:点{_CHINESE_DIGIT}{{1,9}})?|^[{_NUMERAL}]{{1,20}}$"
    rf"|(?<![{_NUMERAL}])[{_NUMERAL}]{{1,20}}(?:点{_CHINESE_DIGIT}{{1,9}})?(?=[{_COUNTED}]|{_UNIT_NAMES})"
)
_SEASONS = {"春": "spring", "夏": "summer", "秋": "autumn", "冬": "winter"}
_CENTURIES = {"上": 20, "本": 21}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS = {
    letter: day for letters in ("一二三四五六日", "123456天") for letter, day in zip(letters, _DAYS, strict=True)
}
_AFTERNOON = ["中午", "下午", "傍晚", "晚上", "夜里", "夜间", "深夜"]
_FORENOON = ["凌晨", "早上", "早晨", "清晨", "上午"]
_CENTURY = re.compile(r"(公元前?)?(前)?\s?第?\s?(?:(\d{1,2})|([上本]))\s?世纪(?:\s?(\d0)\s?年代)?")
# what is written as in English, in this order
_IN_ENGLISH: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r"百分之\s?(\d[\d.]*)"), lambda match: f"{match[1]}%"),
    (re.compile(r"千分之\s?(\d[\d.]*)"), lambda match: f"{match[1]}‰"),
    (re.compile(r"(\d{1,4})\s?分之\s?(\d{1,4})"), lambda match: f"{match[2]}/{match[1]}"),
    (re.compile(r"(?<!\d)(\d{1,3})\s?比\s?(\d{1,3})(?!\d)"), lambda match: f"{match[1]}:{match[2]}"),
    (_CENTURY, lambda match: _century(match)),
    (re.compile(r"(?<!\d)(\d\d)?(\d0)\s?年代"), lambda match: f"{match[1] or 19}{match[2]}s"),
    (
        re.compile(r"(?:公元前\s?(\d{1,4})\s?年?|前\s?(\d{3,4})(?:\s?年|(?=$)))"),
        lambda match: f" {match[1] or match[2]} bc ",
    ),
    (re.compile(r"公元(?=\s?\d)"), lambda match: ""),
    (
        re.compile("(?:星期|周|礼拜)([1-6一二三四五六日天])(?![\u4e00-\u9fff]*年)"),
        lambda match: f" {_WEEKDAYS[match[1]]} ",
    ),
    (re.compile(r"(\d{4})\s?年?\s?第?\s?([1-4])\s?季度"), lambda match: f" q{match[2]} {match[1]} "),
    (re.compile(r"(\d{4})\s?年的?([春夏秋冬])[天季]?"), lambda match: f" {_SEASONS[match[2]]} {match[1]} "),
    (
        re.compile(
            rf"(?P<when>{'|'.join(_AFTERNOON + _FORENOON)})?\s?(?<!\d)(?P<hour>\d{{1,2}})\s?(?P<sign>[点时:])"
            r"(?![间代期])"
            r"(?:\s?(?P<minute>\d{1,2})\s?分?|(?P<half>半)|1?(?P<quarter>刻)|整|钟)?"
        ),
        lambda match: _clock(match),
    ),
]
_MYRIADS = re.compile(r"(?<![\d.])(\d{1,12}(?:\.\d{1,6})?)\s?(万亿|万|亿)")
_MEASURES = re.compile(rf"(?<=\d)\s?(?:[{_MEASURE}]|人(?!民))|(?<=月)份")
_TOTAL = re.compile(r"(?:总|一)?共有?\s?(?=\d)")
_SIZES = {"万": 10**4, "亿": 10**8, "万亿": 10**12}
_COUNTRY_NAMES = """
中国 美国 英国 法国 德国 日本 韩国 俄罗斯 意大利 西班牙 加拿大 澳大利亚 印度 巴西 荷兰 瑞士 瑞典 挪威 丹麦 芬兰
希腊 土耳其 埃及 墨西哥 阿根廷 泰国 越南 新加坡 马来西亚 波兰 奥地利 比利时 葡萄牙 爱尔兰 新西兰 乌克兰 以色列
"""
_ROLE_NAMES = """
著名 作家 诗人 画家 演员 导演 歌手 作曲家 科学家 物理学家 数学家 哲学家 政治家 企业家 总统 国王 皇帝 主席 总理
教授 博士 主任 校长 院长 副院长 部长 经理 医生 律师 记者 小说
唐代 宋代 元代 明代 清代 唐朝 宋朝 元朝 明朝 清朝
"""
_TITLE_NAMES = """
先生 女士 教授 博士 主席 总统 总理 院士 老师 同志 主任 校长 院长 副院长 部长 经理 医生 律师 记者
少将 中将 上将 将军 皇帝
"""
_COUNTRIES, _ROLES, _TITLES = _COUNTRY_NAMES.split(), _ROLE_NAMES.split(), _TITLE_NAMES.split()
_KINDS = ("特别行政区", "自治区", "市", "省", "县", "区", "镇", "村", "州", "公司", "集团")
_WORK = re.compile(
    "[\u4e00-\u9fff]{0,6}(?:小说|电影|影片|剧|诗集?|散文|专辑|歌曲|著作|名著|作品|书)《([^《》]{1,30})》"
)
_RANKS = "第一二三四五六七八九十副前非"
_PROVINCES = """
河北 山西 辽宁 吉林 黑龙江 江苏 浙江 安徽 福建 江西 山东 河南 湖北 湖南 广东 海南 四川 贵州 云南 陕西 甘肃 青海 台湾
内蒙古 广西 西藏 宁夏 新疆
"""
_OF_PROVINCE = rf"(?:中国)?(?:(?:{'|'.join(_PROVINCES.split())})(?:省|\w{{0,3}}自治区)?)"
_PROVINCE = re.compile(rf"^{_OF_PROVINCE}(?=[\u4e00-\u9fff]{{2}})(?!人民|大学|农业|师范|省|市|话|菜|\w{{0,3}}自治区)")
_PLACE = re.compile(r"(?<=[\u4e00-\u9fff]{2})[省市](?=[\u4e00-\u9fff]{2,6}[市区县镇]$)")
_COMPANIES = ("公司", "集团")
_PREFIX = re.compile("|".join(_COUNTRIES))
_ROLE = "[\u4e00-\u9fff]{1,3}(?:[员家者]|[诗词商]人|[教大]师|皇帝|(?:创始|负责|领导|主持|发明|代表|传)人)|医生|将军"
_BEFORE_NAME = re.compile(
    f"(?:(?:{'|'.join((*_COUNTRIES, *_ROLES))})的?)*(?:{_ROLE}|{'|'.join((*_COUNTRIES, *_ROLES))})的?"
)
_AFTER_NAME = re.compile(f"(?:{'|'.join(_TITLES)})$")
_BESIDE_DIGITS = re.compile(r"(?<=[\u4e00-\u9fff])(?=\d)|(?<=\d)(?=[\u4e00-\u9fff])")
_ABOUT = re.compile(r"(?:大约|约为|约|大概)\s?(?=\d)")
_YES = re.compile(r"(?:yes|有的?|是的?|对的?|没错|正确)(?:[,，。.;；:：!！]+(.*))?")
_NO = re.compile(r"(?:no|不是的?|不|否|不对|没有|并非如此)(?:[,，。.;；:：!！]+(.*))?")
_REPEATED = re.compile(r"([不没](?:是|有)?|并不是?|并非|并没有)?([\u4e00-\u9fff]{1,40}?)[。.！!]?")
_UNSURE = re.compile("但|可能|也许|或|大概|吗|是不是|不一定|也是|也不")


def is_chinese_yes(text: str, question: str) -> bool | None:
    """Return whether a Chinese answer to a yes-or-no question says yes; None if that is unclear or no such answer.

    The first word decides. A reason may follow, but must not take it back or, after a yes, tell the subjects apart.
    """
    text = "".join(simplified(text).split())
    text = text.lower().rstrip(".。") if text.isascii() else text
    if (text.isascii() and text not in ("yes", "no")) or not re.search("吗|是否|是不是", question):
        return None
    yes = _YES.fullmatch(text)
    match = yes or _NO.fullmatch(text)
    if not match and (said := _REPEATED.fullmatch(text)) and not _UNSURE.search(text):
        asked = re.sub(r"\W|是否|吗|呢", "", simplified(question))
        asked = asked.replace("是不是", "是")
        denied = re.sub("不(?!是不)|没(?=有)", "", said[2], count=1)
        if len(said[2]) > 1 and asked.endswith(said[2]):
            return not said[1]
        return False if not said[1] and denied != said[2] and asked.endswith(denied) else None
    if not match or _UNSURE.search(rest := match[1] or ""):
        return None
    if yes:
        return None if re.search("[不非否没]|只|而", rest) else True
    repeated = len(rest) > 3 and rest.strip("。").lstrip("他她它们两人都") in "".join(simplified(question).split())
    return None if re.match("是的?|对|[不否没]有?[,，]", rest) or repeated else False


def simplified(text: str) -> str:
    """Return a text in simplified characters."""
    return text if text.isascii() else text.translate(_SCRIPT)


def with_digits(text: str) -> str:
    """Write Chinese numerals before what they count as digits, and dates and times in words as in English."""
    if text.isascii():
        return text
    text = _ABOUT.sub(" about ", _WORDS.sub(_digits, text))
    for pattern, written in _IN_ENGLISH:
        text = pattern.sub(written, text)
    text = _MYRIADS.sub(lambda match: _plain(Fraction(match[1]) * _SIZES[match[2]]) or match[0], text)
    return _BESIDE_DIGITS.sub(" ", _TOTAL.sub("", _MEASURES.sub(" ", text)))


def _century(match: re.Match[str]) -> str:
    before = " bc" if match[2] or (match[1] or "").endswith("前") else ""
    century = int(match[3]) if match[3] else _CENTURIES[match[4]]
    return f" {century - 1}{match[5]}s{before} " if match[5] else f" {century}th century{before} "


def _clock(match: re.Match[str]) -> str:
    hour, when = int(match["hour"]), match["when"]
    if hour > 24 or (match["sign"] == ":" and not (when and match["minute"])):
        return match[0]
    minute = 30 if match["half"] else 15 if match["quarter"] else int(match["minute"] or 0)
    late = when in _AFTERNOON and not (when == "中午" and hour > 10)
    hour = hour % 12 + 12 if late and hour < 12 else hour % 12 if when == "凌晨" else hour
    return f" {hour:02}:{minute:02} "


def same_chinese_name(answer: str, gold: str, question: str) -> bool:
    """Return whether two Chinese names differ in what is before them or after them: a country, province, or title.

    The last place of an address is enough, since the province is known from the city: 广东省深圳市 is 深圳.
    """
    if gold.isascii() or answer.isascii():
        return False
    mine, theirs = ("".join(simplified(text).split()).rstrip("。") for text in (answer, gold))
    if theirs.endswith("号") and len(mine) > 5 and re.sub("[省市]", "", theirs).endswith(re.sub("[省市]", "", mine)):
        return True  # the end of an address
    if match := _WORK.fullmatch(mine):
        mine = match[1]
    mine, theirs = _last_place(mine), _last_place(theirs).strip("《》")
    one, other = _name(mine, question), _name(theirs, question)
    if one[0] != other[0] or len(one[0]) < 2:
        return False
    asked = [kind for kind in _KINDS if kind in question and (kind in _COMPANIES) == (one[2] in _COMPANIES)]
    kinds = {one[2], other[2]} - {""}
    # a province is not its capital: 吉林省, 吉林市
    if len(kinds) > 1 or (one[2] and not other[2] and asked and one[2] not in asked):
        return False
    return len({one[1], other[1]} - {""}) < 2


def _last_place(text: str) -> str:
    """Return an address without its province, and without the kinds of what is around its last place."""
    return _PLACE.sub("", _PROVINCE.sub("", text, count=1) or text)


def _name(text: str, question: str = "") -> tuple[str, str, str]:
    """Return the name, the country before it and the kind of place after it."""
    before = _BEFORE_NAME.match(text)
    # "第二作者" is not "第一作者"
    if before and any(letter in _RANKS and letter not in question for letter in before[0]):
        before = None
    name = text[before.end() :] if before and len(text) - before.end() > 1 else text
    name = text if name in _ROLES else name
    country = _PREFIX.search(text[: len(text) - len(name)])
    name = _AFTER_NAME.sub("", name) or name
    kind = next((kind for kind in _KINDS if name.endswith(kind) and len(name) > len(kind) + 1), "")
    if kind == "自治区":
        name = re.sub("(?:维吾尔|壮族|回族)(?=自治区$)", "", name)
    return name.removesuffix(kind), country[0] if country else "", kind


def is_role(text: str) -> bool:
    """Return whether a text is a profession, perhaps with a country before it."""
    return _BEFORE_NAME.fullmatch(simplified(text)) is not None


def is_country(text: str) -> bool:
    """Return whether a text is the name of a country, or of a Chinese province."""
    return simplified(text) in _COUNTRIES or re.fullmatch(_OF_PROVINCE, simplified(text)) is not None


def plain_name(text: str) -> str:
    """Return a name without titles and kinds of places."""
    return _name("".join(simplified(text).split()))[0] if re.search("[\u4e00-\u9fff]", text) else text


def belongs(answer: str, gold: str) -> bool:
    """Return whether an answer names something of the gold answer: 李白的诗."""
    rest = "" if gold.isascii() else answer.partition(gold)[2]
    return rest[:1] in tuple("的之") and rest[1:2] > "\u4e00"


def _digits(match: re.Match[str]) -> str:
    if len(match[0]) == 2 and not set(match[0]) & set("十百千万亿"):
        return match[0]  # "二三个" is two or three
    whole, _, rest = match[0].partition("点")
    value = read_words(whole)
    if value is None or not _plain(value):
        return match[0]
    return _plain(value) + (f".{_plain(read_words('一' + rest) or Fraction())[1:]}" if rest else "")


def _plain(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else ""


CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0002fa1f"
_ARTICLES = frozenset({"a", "an", "the"})
# words and the token that they share with their short form or other spelling
_PAIRS = """
saint-st street-st mount-mt doctor-dr mister-mr professor-prof junior-jr senior-sr versus-vs avenue-ave road-rd
drive-dr boulevard-blvd lane-ln incorporated-inc corporation-corp company-co limited-ltd brothers-bros grey-gray
okay-ok defence-defense programme-program catalogue-catalog aluminium-aluminum univ-university jan-january
feb-february apr-april aug-august sept-september oct-october nov-november dec-december general-gen colonel-col
captain-capt lieutenant-lt sergeant-sgt governor-gov senator-sen reverend-rev
"""
_SAME = dict(pair.split("-") for pair in _PAIRS.split())
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ŋ": "n"}
)
_SIGNS = str.maketrans(dict(zip("♯⁄−＋’‘`ʻ", "#/-+''''", strict=True)) | {"♭": " flat", "≠": " not ", "¬": " not "})
_BOUNDS = {"<": " most ", "≤": " most ", ">": " over ", "≥": " least ", "±": " about "}
_BOX = re.compile(r"^\s*\$*\s*\\f?boxed\s*\{(.*)\}\s*\$*\s*\.?\s*$", re.DOTALL)
_MATH = re.compile(r"\$(?=\S)([^$]*?\S)\$(?!\d)")
_INITIALS = re.compile(r"(?<![\w.])(?:[^\W\d_]\.\s?)+(?=[^\W\d_]?)")
_SPACED_INITIALS = re.compile(r"(?<![\w'.])[A-Z](?: [A-Z](?![\w'.]))+")
_UNITED_STATES = re.compile(r"(?<![\w$])USA?(?![\w$])")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,]*\d)")
_ESCAPED, _RESERVED = re.compile(r"\\([%$&#_])"), re.compile("[\ue000\ue001]")
_LETTERS_ONLY = re.compile(r"(?!.* (?:[sS]harp|[pP]lus|[mM]inus)\b)[A-Za-z ]+")
_THIN_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_HALVES = re.compile(r"(?<=\d) ?([¼½¾])")
_POWER, _ACCENTS = re.compile(r"(?<=\d)(⁻?[⁰¹²³⁴-⁹]+)"), re.compile("[\u0300-\u036f]")
_TIMES = re.compile(r"\\(?:times|cdot)(?![a-z])\s?")
_CAPITAL_MILLION = re.compile(r"(?<=\d)M(?!\w)")
_DIGIT = re.compile(r"\d")
_Rules = list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]
_CLEANED: _Rules = [
    (re.compile(r"(?<=[\w\ue001])\s*[‐‑‒–—]\s*(?=\w)"), lambda m: "-" if m[0] == m[0].strip() else " - "),
    (re.compile(r"(?<=[^\W\d])'(?=\w)|(?<=\w)'(?=[^\W\d])"), ""),
    (re.compile(r"(?<=[^\W\d])\.(?=[^\W\d])"), ""),
    (re.compile(r"(?<!\w)!(?=\w)"), " not "),
    (re.compile(r"(?<![\w])([a-g]) sharp(?!\w)"), r"\1#"),
    (re.compile(r"(?<![\w])([a-f]) (plus|minus)(?!\w)"), lambda m: m[1] + {"plus": "+", "minus": "-"}[m[2]]),
]
_CLEANED_NUMBERS: _Rules = [
    (re.compile(r"[<≤>≥±](?=\s*[$€£¥]?\d)"), lambda match: _BOUNDS[match[0]]),
    (re.compile(r"^\s*\+(?=\d)"), ""),
    (re.compile(r"(?<=\d)\s?[:∶]\s?(?=\d)"), ":"),
    (re.compile(r"(?<!\w)(?:v|ver\.?|version|release)\s?(?=\d+(?:\.\d|\s?$))"), ""),
    (re.compile(r"(?<=[a-z)])_\{?(\d+)\}?|\^\{?(\d*[+-])\}?(?![\w(])"), lambda match: match[1] or match[2]),
    (re.compile(r"(?<![\w#])(?:#|no\.|nr\.|number)\s*(?=\d)"), ""),
]
ADDRESS = "ǀ"  # begins the token of an address; a letter, so that it is part of the word
_PATH, _AT = "ǀ", "ǁ"
_PUBLISHED = re.compile(
    r"(?:https?://)?(?:www\.|dx\.)?(?:doi\.org/|arxiv\.org/(?:abs|pdf)/)|(?<!\w)(?:doi|arxiv):\s?", re.IGNORECASE
)
_DOTTED = re.compile(r"[.@]\w|[:/]/|(?:doi|arxiv):", re.IGNORECASE)
_LINK = re.compile(r"\[[^\[\]]{1,100}\]\(((?:https?://|www\.)[^\s()]{1,300})\)")
_ADDRESS = re.compile(
    r"(?:(?:https?://|mailto:)(?:www\.)?|www\.)(?P<long>[^\s<>()\"“”\u3000-\u9fff\uff00-\uffef]{1,300})"
    r"|(?<![A-Za-z0-9@._/-])(?P<short>(?:[A-Za-z0-9._+-]{1,60}@)?(?:[A-Za-z0-9-]{1,40}\.){1,4}"
    r"(?:com|org|net|edu|gov|int|info|dev|app|[a-z]{2})(?:/[A-Za-z0-9/_.~?=&%+-]{0,200})?)(?![A-Za-z0-9@])"
)
_MARK = r"\ue000[^\ue000\ue001]*\ue001"
_TOKEN = re.compile(
    rf"{_MARK}|[{CJK}]|[\U0001f1e6-\U0001f1ff]{{2}}|(?:(?<![\w.])-)?\d++(?:[./:\-]\d++)*+(?![^\W\d_{CJK}])|[^\W{CJK}]+(?:\++|#)(?!\w)|"
    rf"(?<!\w)[a-z]-(?![\w-])|[^\W{CJK}]+|\w+|\+"
)
_SYMBOLS = re.compile(r"[^\s\w!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]+")

# British spellings; a word that only looks like one is changed on both sides
_BRITISH = re.compile(
    r"(?<=[a-z]{3})our(?=s?\b|ed|ing|ful|ite)|(?<=[a-z]{2}t)re\b|(?<=h)ae(?=m)|(?<=p)ae(?=d)|\boe(?=s)"
)
_ROMAN = re.compile(r"x{0,2}(?:ix|iv|v?i{1,3}|v)|x|xx")  # up to 23; a single letter only at the end of a name


@lru_cache(maxsize=8192)
def tokens(text: str) -> list[str]:
    """Return the words of an answer: lower case, no punctuation, no articles, one token per CJK character.

    If there is no word at all, as in a flag emoji, the symbols themselves are returned.
    """
    text = with_digits(normalise_words(text))
    text = mark_quantities(mark_dates(with_ordinals(text)))
    found = [
        _SAME.get(word, word).replace("isation", "ization") for word in _TOKEN.findall(_BRITISH.sub(_american, text))
    ]
    found = [word.strip("\ue000\ue001") for word in found]
    # a final "a" is part of a name: "Vitamin A", "Serie A"
    kept = [word for word in found[:-1] if word not in _ARTICLES] + found[-1:]
    # an answer of articles only ("The The") is kept
    kept = found if kept and set(found) <= _ARTICLES else kept
    return without_roman(kept) or _SYMBOLS.findall(text)


def _american(match: re.Match[str]) -> str:
    return {"our": "or", "re": "er"}.get(match[0], "e")


def normalise_words(text: str) -> str:
    """Return a text in lower case, without accents, markup and the points of initials."""
    text = " ".join(simplified(text).split())  # long runs of spaces slow the patterns down
    if _LETTERS_ONLY.fullmatch(text):  # most names; none of the other patterns changes them
        text = _SPACED_INITIALS.sub(lambda match: match[0].replace(" ", ""), text)
        return _UNITED_STATES.sub("United States", text).lower()
    if _DOTTED.search(text):
        text = _ADDRESS.sub(_address, _LINK.sub(r"\1", _PUBLISHED.sub("", text)))
    if "\\" in text:
        boxed = _BOX.match(text)
        text = _TIMES.sub("×", unwrap(_ESCAPED.sub(r"\1", boxed[1] if boxed else text)))
    text = _MATH.sub(r"\1", text) if "$" in text else text
    if not text.isascii():
        text = _HALVES.sub(lambda match: {"¼": ".25", "½": ".5", "¾": ".75"}[match[1]], text)
        text = _POWER.sub(r"^\1", _THIN_SPACE.sub(",", _RESERVED.sub("", text))).translate(_SIGNS)
        # NFKD separates accents, which are removed; NFKC then unifies the remaining forms
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFKC", text)
    text = text.translate(_SIGNS)
    text = _INITIALS.sub(_joined, text)
    text = _SPACED_INITIALS.sub(lambda match: match[0].replace(" ", ""), text)
    numbers = _DIGIT.search(text) is not None
    # the capitals tell these from metres and from "us"
    text = _CAPITAL_MILLION.sub("mn", spelled_prefixes(text)) if numbers else text
    text = _UNITED_STATES.sub("United States", text).casefold().translate(_LETTERS)
    text = text.replace("_", " ").replace("&", " and ")
    for pattern, new in (*_CLEANED, *_CLEANED_NUMBERS) if numbers else _CLEANED:
        text = pattern.sub(new, text)
    return _THOUSANDS.sub(lambda match: match[1] + match[2].replace(",", ""), text) if numbers else text


def has_digit(token: str) -> bool:
    """Return whether a token contains a digit: a number, a date, or a name with a number."""
    return not token.isalpha() and any(map(str.isdigit, token))


def _address(match: re.Match[str]) -> str:
    """Return a web or mail address as one word, without its protocol."""
    text = (match["long"] or match["short"]).rstrip("/.,;:!?'").replace("/", _PATH).replace("@", _AT)
    return f" {ADDRESS}{re.sub(rf'[^A-Za-z0-9{_PATH}{_AT}]', '', text)} "


def _joined(match: re.Match[str]) -> str:
    text = match[0]
    return re.sub(r"[.\s]", "", text) + (" " if text[-1].isspace() or match.end() < len(match.string) else "")


def without_roman(words: Sequence[str]) -> list[str]:
    """Replace Roman numerals of kings and wars by digits; a first word is a name or a pronoun and is kept."""
    last = len(words) - 1
    return [
        str(roman(word)) if place and _ROMAN.fullmatch(word) and (len(word) > 1 or place == last) else word
        for place, word in enumerate(words)
    ]


def roman(word: str) -> int:
    """Return the value of a Roman numeral in lower case; 0 if a word is none."""
    if not re.fullmatch(r"(?=.)m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})", word):
        return 0
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}[letter] for letter in word]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))
